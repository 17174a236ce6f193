"""How a run is asked to end: by SIGINT, by SIGTERM, or by a request in its control folder."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from streamwork.world import Clock


class Stop:
    """Whether somebody has asked for an end. A plain flag: a lock could be held at the moment the signal comes."""

    SLICE = 0.05

    def __init__(self, clock: Clock) -> None:
        self.asked = False
        self._clock = clock

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is asked for."""
        until = self._clock.monotonic() + seconds
        while not self.asked and (left := until - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, self.SLICE))

    @contextmanager
    def on_signal(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for an end; a second signal acts as usual. Only the main thread can listen to signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: FrameType | None) -> None:
            self.asked = True
            signal.signal(number, before[signal.Signals(number)])

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
