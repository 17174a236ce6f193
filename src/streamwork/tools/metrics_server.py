"""Answering Prometheus while a job runs.

The server listens on 127.0.0.1 only and has one route. It asks for a bearer token if it was given one.
"""

from __future__ import annotations

import contextlib
import hmac
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from streamwork.errors import StreamworkError, WrongUse

ADDRESS = "127.0.0.1"
ROUTE = "/metrics"
TOKEN = "STREAMWORK_METRICS_TOKEN"
"""The environment variable that holds the token; without it none is asked for."""
SOCKET_SECONDS = 5.0
CONTENT = "text/plain; version=0.0.4; charset=utf-8"


@contextlib.contextmanager
def serving(
    text: Callable[[], bytes], port: int, token: str, tell: Callable[[str], None]
) -> Iterator[ThreadingHTTPServer]:
    """Answer with `text` for as long as it lasts. Port 0: one that is free. `tell` gets the address."""

    class Handler(_Handler):
        secret = token
        answer = staticmethod(text)

    try:
        server = ThreadingHTTPServer((ADDRESS, port), Handler)
    except OSError as error:
        raise WrongUse(
            "SW-METRICS-PORT", f"port {port} cannot be had: {error}", "choose another one, or 0 for any that is free"
        ) from error
    server.block_on_close = False  # whoever is slow to listen does not hold up the end of a run
    thread = threading.Thread(target=server.serve_forever, name="streamwork-metrics", daemon=True)
    thread.start()
    try:
        tell(f"metrics at http://{ADDRESS}:{server.server_port}{ROUTE}")
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """GET /metrics, and nothing else."""

    server_version, sys_version = "streamwork", ""
    timeout = SOCKET_SECONDS
    secret = ""
    answer: Callable[[], bytes]

    def do_GET(self) -> None:
        if (refused := self._refusal()) is not None:
            self._send(refused, refused.phrase.encode())
            return
        try:
            self._send(HTTPStatus.OK, self.answer())
        except StreamworkError as error:  # such as a job that has not begun yet
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, error.code.encode())

    def _refusal(self) -> HTTPStatus | None:
        """A page in a browser must not be able to ask, under whatever name it has this machine called."""
        assert isinstance(self.server, ThreadingHTTPServer)
        mine = {f"{name}:{self.server.server_port}" for name in (ADDRESS, "localhost")}
        if self.headers.get("Host") not in mine or "Origin" in self.headers:
            return HTTPStatus.FORBIDDEN
        given = self.headers.get("Authorization", "")
        if self.secret and not hmac.compare_digest(given.encode(), f"Bearer {self.secret}".encode()):
            return HTTPStatus.UNAUTHORIZED
        return None if self.path.partition("?")[0] == ROUTE else HTTPStatus.NOT_FOUND

    def _send(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", CONTENT if status is HTTPStatus.OK else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Questions are no news."""
