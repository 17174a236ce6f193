"""Server-sent events: what has changed in the overview, or in a job, since a client has seen it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from streamwork.console.plain import encoded
from streamwork.console.poller import Listener, Poller, Seen
from streamwork.observe.job_view import JobView
from streamwork.observe.summary import JobSummary, Overview
from streamwork.serving.application import Application
from streamwork.serving.http import EVENTS, Request, Response
from streamwork.world import Clock

PULSE = 10.0
"""Seconds between two signs of life."""
RETRY_MS = 2_000
"""After which a browser connects again."""
ROOT = ""
"""The topic of the overview; others are names of jobs."""
Made = Callable[[Any], tuple[str, Any] | None]


def same(before: Overview | JobView, now: Overview | JobView) -> bool:
    """True if only ages differ, which a page counts by itself."""
    return bool(_without_ages(before) == _without_ages(now))


def _without_ages(found: Overview | JobView) -> Any:
    if isinstance(found, Overview):
        return found
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, age_seconds=None))


class OverviewEvents:
    """The events of the overview for one client: all jobs at first, then those that have changed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[str, JobSummary] | None = None

    def __call__(self, found: Overview) -> tuple[str, Any] | None:
        before, now = self._sent or {}, {one.job: one for one in found.jobs}
        first, self._sent = self._sent is None, now
        changed = [one for name, one in now.items() if before.get(name) != one]
        gone = sorted(before.keys() - now.keys())
        if not (first or changed or gone):
            return None
        return "overview", {"root": found.root, "all": first, "jobs": changed, "gone": gone, "at": self._clock.now()}


def stream(
    request: Request, application: Application, poller: Poller[Any], topic: str, made: Made, pulse: float = PULSE
) -> Response:
    """Events of a topic until the client goes away. Refuses if there are too many clients (SW-SERVE-BUSY)."""
    application.check_streams()
    return Response(kind=EVENTS, pieces=_events(request, application, poller, topic, made, pulse))


async def _events(
    request: Request, application: Application, poller: Poller[Any], topic: str, made: Made, pulse: float
) -> AsyncIterator[bytes]:
    gone = asyncio.ensure_future(request.closed())
    try:
        with application.streaming(), poller.listening(topic) as listener:
            yield b"retry: %d\n\n" % RETRY_MS
            while not gone.done():
                if await _changed(listener, gone, pulse):
                    piece = _event(listener.seen, made)
                    if piece:
                        yield piece
                elif not gone.done():
                    yield b": alive\n\n"
    finally:
        gone.cancel()


async def _changed(listener: Listener[Any], gone: asyncio.Future[None], pulse: float) -> bool:
    """Wait for a change; False if the client has gone, or after `pulse` seconds."""
    waiting = asyncio.ensure_future(listener.changed.wait())
    await asyncio.wait((gone, waiting), timeout=pulse, return_when=asyncio.FIRST_COMPLETED)
    if waiting.cancel():
        return False
    listener.changed.clear()
    return True


def _event(seen: Seen[Any], made: Made) -> bytes:
    if seen.error is None:
        found = made(seen.value)
        return b"" if found is None else _text(*found)
    return _text("gone", {"error": seen.error.to_dict()})


def _text(name: str, value: Any) -> bytes:
    """JSON has no line breaks, so one line of data is enough."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), encoded(value))
