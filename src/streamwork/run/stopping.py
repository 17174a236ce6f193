"""How a run is asked to end: by SIGINT, by SIGTERM, or by a request in its control folder.

A run listens from its beginning to its end; signals that came earlier were remembered by `streamwork.early`. While it starts, it
ends as soon as nothing is half done: at once while the job file is loaded or it waits for another driver or for Spark, else when
recovery is finished. Later it completes the epoch under way.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from streamwork import early
from streamwork.world import Clock

ONE_SIGNAL_SECONDS = 1.0
"""Within this time, a signal that comes again is the same one: `timeout` and others signal a process and also its group."""


class Stopped(Exception):
    """The end was asked for while the run was starting."""


class _Now(BaseException):
    """Raised by the handler in the middle of code that would not look at the flag, and must not catch it."""


class Stop:
    """Whether somebody has asked for an end. A plain flag: a lock could be held at the moment the signal comes."""

    SLICE = 0.05

    def __init__(self, clock: Clock) -> None:
        self.asked = False
        self._clock = clock
        self._listens = False
        self._interrupts = False

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is asked for."""
        until = self._clock.monotonic() + seconds
        while not self.asked and (left := until - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, self.SLICE))

    def check(self) -> None:
        """Raise `Stopped` if it is asked for."""
        if self.asked:
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Wait so long. Raises `Stopped` as soon as it is asked for."""
        self.wait(seconds)
        self.check()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Meanwhile a signal does not wait: `Stopped` is raised at once. For what may take long, and leaves nothing half done."""
        self._interrupts = True
        try:
            self.check()  # it may have come before
            yield
        except _Now:
            raise Stopped from None
        finally:
            self._interrupts = False

    @contextmanager
    def on_signal(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for an end; a second signal acts as usual. Only the main thread can listen to signals."""
        if self._listens or threading.current_thread() is not threading.main_thread():
            yield
            return
        heard: dict[int, float] = {}

        def ask(number: int, frame: FrameType | None) -> None:
            self.asked = True
            if self._interrupts:
                raise _Now
            now = self._clock.monotonic()
            if now - heard.setdefault(number, now) > ONE_SIGNAL_SECONDS:
                signal.signal(number, before[number])
                signal.raise_signal(number)

        before: dict[int, Any] = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        came, originals = early.release()
        before.update(originals)
        if came:  # while the package was being imported
            self.asked = True
            heard.update(dict.fromkeys(came, self._clock.monotonic()))
        self._listens = True
        try:
            yield
        finally:
            self._listens = False
            for number, handler in before.items():
                signal.signal(number, handler)
