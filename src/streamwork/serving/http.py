"""A request and a response of HTTP, and errors as responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from streamwork.errors import JobFailed, Refused, StreamworkError, WrongUse

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
MOST_PARAMETERS = 64

STATUS = {
    "SW-SERVE-TOKEN": 401,
    "SW-SERVE-HOST": 403,
    "SW-SERVE-ROUTE": 404,
    "SW-SERVE-METHOD": 405,
    "SW-SERVE-SIZE": 413,
    "SW-SERVE-BUSY": 429,
    "SW-QUERY-COMPONENT": 404,
    "SW-QUERY-JOB": 404,
    "SW-QUERY-AT": 404,
    "SW-SAVEPOINT-UNKNOWN": 404,
    "SW-EPOCH-UNKNOWN": 404,
    "SW-LETTERS-UNKNOWN": 404,
    "SW-CONSOLE-READ-ONLY": 403,
    "SW-CONSOLE-JOBFILE": 409,
    "SW-QUERY-BEHIND": 412,
    "SW-QUERY-LIMIT": 413,
    "SW-QUERY-NO-STATE": 503,
    "SW-QUERY-GRAPH": 503,
    "SW-STATE-SCHEMA": 409,
    "SW-INTERNAL": 500,
}
"""The status of an error's response, where its class does not decide."""


def status_of(error: StreamworkError) -> int:
    by_class = 400 if isinstance(error, WrongUse) else 503
    return STATUS.get(error.code, by_class)


@dataclass(frozen=True)
class Request:
    scope: Mapping[str, Any]
    receive: Receive

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @cached_property
    def segments(self) -> list[str]:
        """The parts of the path, decoded one by one, so that an encoded slash is part of a name."""
        raw = self.scope["raw_path"]
        try:
            if b"%" not in raw:
                return str(raw, "utf-8").split("/")[1:]
            return [unquote_to_bytes(part).decode() for part in raw.split(b"/")][1:]
        except UnicodeDecodeError:
            raise malformed("the path is not UTF-8") from None

    @cached_property
    def parameters(self) -> Mapping[str, list[str]]:
        raw = self.scope["query_string"]
        if not raw:
            return {}
        found: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS
            )
        except ValueError:
            raise malformed("the query string cannot be read") from None
        for name, value in pairs:
            found.setdefault(name, []).append(value)
        return found

    def header(self, name: bytes) -> str | None:
        """A header that comes at most once."""
        found = None
        for one, value in self.scope["headers"]:
            if one == name:
                if found is not None:
                    raise malformed(f"the header {name.decode()} comes more than once")
                found = value
        return None if found is None else found.decode("latin-1")

    def wants(self, kind: str) -> bool:
        return kind in (self.header(b"accept") or "")

    async def body(self, most: int) -> bytes:
        """Refuses one of more than `most` bytes, if possible before it is read (SW-SERVE-SIZE)."""
        length = self.header(b"content-length")
        if length is not None and length.isdecimal() and int(length) > most:
            raise too_large(f"the request has {length[:20]} bytes", f"send at most {most:,} bytes")
        found = bytearray()
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise malformed("the connection was closed")
            found += message.get("body", b"")
            if len(found) > most:
                raise too_large("the request is too large", f"send at most {most:,} bytes")
            more = message.get("more_body", False)
        return bytes(found)

    async def closed(self) -> None:
        """Wait until the client has closed the connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


@dataclass(frozen=True)
class Response:
    """`pieces` is a body that is sent piece by piece; `cache` how long others may keep it."""

    status: int = 200
    kind: str = JSON
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    pieces: AsyncIterator[bytes] | None = field(default=None, compare=False)
    cache: bytes = b"no-store"

    def start(self, more: tuple[tuple[bytes, bytes], ...] = ()) -> dict[str, Any]:
        """`more` are headers of every answer of the server."""
        headers = [
            (b"content-type", self.kind.encode()),
            (b"cache-control", self.cache),
            (b"x-content-type-options", b"nosniff"),
            *self.headers,
            *more,
        ]
        if self.pieces is None:
            headers.append((b"content-length", b"%d" % len(self.body)))
        return {"type": "http.response.start", "status": self.status, "headers": headers}


def failed(error: StreamworkError, status: int | None = None) -> Response:
    """An error as a response. The connection is closed where the rest of the request may not have been read."""
    status = status or status_of(error)
    headers: list[tuple[bytes, bytes]] = [(b"www-authenticate", b"Bearer")] if status == 401 else []
    if status in (401, 403, 413):
        headers.append((b"connection", b"close"))
    if status in (429, 503):
        headers.append((b"retry-after", b"1"))
    return Response(status, JSON, msgspec.json.encode({"error": error.to_dict()}), tuple(headers))


def error_of(status: int, body: bytes) -> StreamworkError:
    """The error that a response holds; the inverse of `failed`."""
    try:
        found = msgspec.json.decode(body)["error"]
        code, cause, action = found["code"], found["cause"], found["action"]
    except (msgspec.DecodeError, KeyError, TypeError):
        code, cause, action = "SW-SERVE-ANSWER", f"the server answered {status}", "check the address"
    if status in (409, 500, 502, 504) or status >= 500 or status == 412:
        return JobFailed(code, cause, action)
    return Refused(code, cause, action) if status == 403 else WrongUse(code, cause, action)


def malformed(what: str) -> WrongUse:
    return WrongUse("SW-SERVE-REQUEST", what, "see /openapi.json for what can be requested")


def too_large(what: str, action: str) -> WrongUse:
    return WrongUse("SW-SERVE-SIZE", what, action)


def busy(what: str) -> WrongUse:
    return WrongUse("SW-SERVE-BUSY", what, "ask again later, or start more servers: any number can read a root")
