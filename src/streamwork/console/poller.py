"""`Poller`: reads what browsers show, again and again, in one thread for all of them, and notifies them when it has changed.

It reads only while there are clients, at most once in `every` seconds, and takes at most a part of one core: after a reading that
took long it waits longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from streamwork.errors import JobFailed, StreamworkError, described, is_retryable
from streamwork.world import Clock

T = TypeVar("T")
EVERY = 1.0
"""Seconds between two readings."""
REST = 4.0
"""It rests so many times as long as it has read."""


@dataclass(frozen=True)
class Seen(Generic[T]):
    """What was read last. `number` grows with each change; an error stands in place of a value."""

    number: int = 0
    value: T | None = None
    error: StreamworkError | None = None


@dataclass(eq=False)
class Listener(Generic[T]):
    """One client that shows a topic."""

    topic: str
    loop: asyncio.AbstractEventLoop
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    seen: Seen[T] = field(default_factory=Seen)


class Poller(Generic[T]):
    """`read` gives the value of a topic, `same` whether two values of it show the same."""

    def __init__(
        self, read: Callable[[str], T], same: Callable[[T, T], bool], clock: Clock, every: float = EVERY
    ) -> None:
        self._read = read
        self._same = same
        self._clock = clock
        self._every = every
        self._lock = threading.Lock()
        self._listeners: set[Listener[T]] = set()
        self._seen: dict[str, Seen[T]] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False

    @contextlib.contextmanager
    def listening(self, topic: str) -> Iterator[Listener[T]]:
        """A listener whose `changed` is set, on its event loop, when `seen` is new: soon after the beginning for the first time."""
        mine: Listener[T] = Listener(topic, asyncio.get_running_loop())
        with self._lock:
            self._listeners.add(mine)
            self._wake.set()
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._run, name="streamwork-console", daemon=True)
                self._thread.start()
        try:
            yield mine
        finally:
            with self._lock:
                self._listeners.discard(mine)

    def close(self) -> None:
        self._ended = True
        self._wake.set()

    def _run(self) -> None:
        while True:
            with self._lock:
                topics = sorted({one.topic for one in self._listeners})
                self._seen = {topic: one for topic, one in self._seen.items() if topic in topics}
                if not topics or self._ended:
                    self._thread = None
                    return
            self._wake.clear()
            began = self._clock.monotonic()
            for topic in topics:
                self._look(topic)
            self._wake.wait(max(self._every, REST * (self._clock.monotonic() - began)))

    def _look(self, topic: str) -> None:
        before = self._seen.get(topic, Seen())
        now = self._reading(topic, before)
        with self._lock:
            self._seen[topic] = now
            for one in self._listeners:
                if one.topic == topic and one.seen.number != now.number:
                    one.seen = now
                    if not one.loop.is_closed():
                        one.loop.call_soon_threadsafe(one.changed.set)

    def _reading(self, topic: str, before: Seen[T]) -> Seen[T]:
        try:
            value = self._read(topic)
        except StreamworkError as error:
            return self._failing(error, before)
        except Exception as error:  # of one topic: the others go on
            failed = JobFailed(
                "SW-INTERNAL",
                f"the files cannot be read: {described(error)}",
                "reload the page; if it fails again, report it",
                retryable=is_retryable(error),
            )
            return self._failing(failed, before)
        if before.value is not None and self._same(before.value, value):
            return before
        return Seen(before.number + 1, value)

    @staticmethod
    def _failing(error: StreamworkError, before: Seen[T]) -> Seen[T]:
        is_known = before.error is not None and before.error.to_dict() == error.to_dict()
        return before if is_known else Seen(before.number + 1, error=error)
