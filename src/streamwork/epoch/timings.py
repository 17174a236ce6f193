"""How long the phases of one epoch take."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from streamwork.epoch.phases import Phase
from streamwork.world import Clock


class Timings:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}
        """Phase -> the seconds that it took. A phase that was not reached is missing."""
        self.sinks: dict[str, float] = {}
        """Sink -> its seconds of the commit."""
        self.begin()

    def begin(self) -> None:
        """The first phase begins now."""
        self.started = self._clock.now()  # seconds since 1970
        self._last = self._clock.monotonic()

    def lap(self, phase: Phase) -> None:
        """A phase is done: it took the time since the phase before it was done. A phase that is repeated adds up."""
        now = self._clock.monotonic()
        self.seconds[phase.value] = self.seconds.get(phase.value, 0.0) + now - self._last
        self._last = now

    @contextlib.contextmanager
    def of_sink(self, name: str) -> Iterator[None]:
        """Measure a sink's part of the commit."""
        began = self._clock.monotonic()
        yield
        self.sinks[name] = self._clock.monotonic() - began
