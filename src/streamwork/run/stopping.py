"""`Stop`: the request to stop a run, made by SIGINT, by SIGTERM or through the control folder.

A run handles signals from its start to its end; `streamwork.early` records those that come before. During its start a run stops
as soon as that is safe: at once while it loads the job file or waits for another driver or for Spark, otherwise after recovery.
Later it completes the epoch in progress.
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
"""A second signal within this time counts as the first: `timeout` and others signal a process and also its group."""


class Stopped(Exception):
    """A stop was requested during the start of the run."""


class _Now(BaseException):
    """Raised by the signal handler inside code that does not check the flag, and must not catch it."""


class Stop:
    """Whether a stop has been requested. A plain flag: a lock could be held when the signal handler runs."""

    SLICE = 0.05

    def __init__(self, clock: Clock) -> None:
        self.asked = False
        self._clock = clock
        self._listens = False
        self._interrupts = False

    def wait(self, seconds: float) -> None:
        """Wait `seconds`, or until a stop is requested."""
        until = self._clock.monotonic() + seconds
        while not self.asked and (left := until - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, self.SLICE))

    def check(self) -> None:
        """Raise `Stopped` if a stop has been requested."""
        if self.asked:
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`. Raises `Stopped` as soon as a stop is requested."""
        self.wait(seconds)
        self.check()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside the block a signal raises `Stopped` at once. For long work that is safe to interrupt anywhere."""
        self._interrupts = True
        try:
            self.check()  # requested before the block
            yield
        except _Now:
            raise Stopped from None
        finally:
            self._interrupts = False

    @contextmanager
    def on_signal(self) -> Iterator[None]:
        """SIGINT and SIGTERM request a stop; a second signal acts as usual. Has an effect only on the main thread."""
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
