"""`Http`: requests to a server of queryable state, over one kept connection per thread."""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

from streamwork.errors import JobFailed, WrongUse
from streamwork.serving.http import error_of

TOKEN = "STREAMWORK_ACCESS_TOKEN"
"""The environment variable of the token; without it, the root has a token file (`serving.access`)."""
SECONDS = 120.0
_LOST = (ConnectionError, http.client.BadStatusLine, http.client.CannotSendRequest)


class Http:
    def __init__(self, url: str, token: str | None, timeout: float = SECONDS) -> None:
        parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise WrongUse("SW-QUERY-ADDRESS", f"{url[:200]!r} is no address", "give one such as http://127.0.0.1:8700")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path.rstrip("/")
        self._timeout = timeout
        given = (token or os.environ.get(TOKEN, "")).strip()
        self._headers = {"Authorization": f"Bearer {given}"} if given else {}
        self._local = threading.local()
        self._open: set[http.client.HTTPConnection] = set()
        self.url = url

    def get(self, path: str, accept: str = "") -> tuple[bytes, Message]:
        return self.send("GET", path, accept)

    def send(self, method: str, path: str, accept: str = "", body: bytes | None = None) -> tuple[bytes, Message]:
        """(body, headers) of an answer. Raises the error that the server reports. A kept connection that is lost is made again:
        questions change nothing.
        """
        headers = {**self._headers, "Accept": accept} if accept else self._headers
        for left in (1, 0):
            connection = self._connection()
            fresh = connection.sock is None
            try:
                connection.request(method, self._prefix + path, body, headers)
                response = connection.getresponse()
                found = response.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if left and not fresh and isinstance(error, _LOST):
                    continue
                raise self._unreachable(error) from error
            if response.status != 200:
                raise error_of(response.status, found)
            return found, response.headers
        raise AssertionError("unreachable")

    @contextmanager
    def stream(self, path: str, accept: str) -> Iterator[http.client.HTTPResponse]:
        """An answer that goes on, over a connection of its own."""
        connection = self._kind(self._host, self._port, timeout=self._timeout)
        try:
            connection.request("GET", self._prefix + path, None, {**self._headers, "Accept": accept})
            response = connection.getresponse()
            if response.status != 200:
                raise error_of(response.status, response.read())
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def close(self) -> None:
        for connection in list(self._open):
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        found: Any = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._kind(self._host, self._port, timeout=self._timeout)
            self._open.add(found)
        return found  # type: ignore[no-any-return]

    def _unreachable(self, error: Exception) -> JobFailed:
        return JobFailed(
            "SW-QUERY-UNREACHABLE",
            f"{self.url} cannot be asked: {type(error).__name__}: {error}",
            "start the server: `streamwork serve job.py`",
        )
