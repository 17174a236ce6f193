"""`Application`: the frame around the routes of a server, as an ASGI application.

1  the rate of requests                        SW-SERVE-BUSY
2  Host, Origin and token (`serving.guard`)    SW-SERVE-HOST, SW-SERVE-TOKEN
3  the route and its method                    SW-SERVE-ROUTE, SW-SERVE-METHOD
4  the handler, which answers at once or waits
5  every error becomes a response with code, cause and action

A handler that is not `async` answers from memory, on the event loop. Long work goes to threads (`at_work`), a
bounded number at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from streamwork.errors import JobFailed, StreamworkError, WrongUse, described, is_retryable
from streamwork.serving.guard import Guard
from streamwork.serving.http import Receive, Request, Response, Send, busy, failed
from streamwork.serving.limits import Limits, Rate

Handler = Callable[[Request, list[str]], Response | Awaitable[Response]]
Headers = tuple[tuple[bytes, bytes], ...]
T = TypeVar("T")
SAFE = ("GET", "HEAD")
"""Methods of requests that change nothing."""


@dataclass(frozen=True)
class Route:
    """What is below ``/NAME``. `open` routes need no token."""

    handlers: Mapping[str, Handler]  # by method
    open: bool = False


class Application:
    def __init__(
        self,
        routes: Mapping[str, Route],
        limits: Limits,
        report: Callable[[str], None],
        headers: Headers = (),
        has_pages: bool = False,
    ) -> None:
        """`report` receives errors that no request should cause. `headers` are added to every answer. A browser with `has_pages`
        may have a session in place of the token.
        """
        self.limits = limits
        self.has_pages = has_pages
        self._headers = headers
        self.guard: Guard | None = None
        self._routes = routes
        self._report = report
        self._rate = Rate(limits.requests_per_s, time.monotonic)
        self._threads = ThreadPoolExecutor(limits.at_work, "streamwork-serve")
        self._long = 0
        self._streams = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            answer = self._answer(request)
            response = await answer if inspect.isawaitable(answer) else answer
        except StreamworkError as error:
            response = failed(error)
        except Exception as error:
            self._report(described(error))
            response = failed(
                JobFailed(
                    "SW-INTERNAL",
                    "the server failed to answer",
                    "see what the server has printed",
                    retryable=is_retryable(error),
                )
            )
        await self._send(response, send)

    def _answer(self, request: Request) -> Response | Awaitable[Response]:
        """1 to 4."""
        if not self._rate.allows():
            raise busy("there are too many requests a second")
        segments = request.segments
        route = self._routes.get(segments[0])
        assert self.guard is not None
        self.guard.check(
            request.header(b"host"),
            request.header(b"origin"),
            request.header(b"authorization"),
            route is not None and route.open,
            request.header(b"cookie") if self.has_pages else None,
            request.method not in SAFE,
        )
        if route is None:
            raise unknown_route(segments)
        handler = route.handlers.get(request.method)
        if handler is None:
            raise WrongUse(
                "SW-SERVE-METHOD",
                f"{request.method} does not work here",
                f"use {' or '.join(route.handlers)}",
            )
        return handler(request, segments[1:])

    async def at_work(self, work: Callable[[], T]) -> T:
        """Run long work in a thread. Refuses if too much is waiting (SW-SERVE-BUSY)."""
        if self._long >= self.limits.at_work + self.limits.waiting:
            raise busy("too many long requests are waiting")
        self._long += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._long -= 1

    @contextlib.contextmanager
    def streaming(self) -> Iterator[None]:
        """While an answer goes on, or waits. Refuses if there are too many (SW-SERVE-BUSY)."""
        self.check_streams()
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def check_streams(self) -> None:
        if self._streams >= self.limits.streams:
            raise busy("too many clients are watching or waiting")

    async def _send(self, response: Response, send: Send) -> None:
        await send(response.start(self._headers))
        if response.pieces is None:
            await send({"type": "http.response.body", "body": response.body})
            return
        pieces = response.pieces
        try:
            async for piece in pieces:
                sending = send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.wait_for(sending, self.limits.send_seconds)
        except (TimeoutError, StreamworkError):
            return  # uvicorn closes the connection of an answer that has no end, so the client knows that it is not whole
        finally:
            if isinstance(pieces, AsyncIterator) and hasattr(pieces, "aclose"):
                await pieces.aclose()
        await send({"type": "http.response.body", "body": b""})


def unknown_route(segments: list[str]) -> WrongUse:
    shown = "/".join(segments)[:80]
    return WrongUse("SW-SERVE-ROUTE", f"there is nothing at {'/' + shown!r}", "see /openapi.json for what there is")
