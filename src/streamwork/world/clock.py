"""Time, as something that is passed in."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, UTC. May jump when somebody sets the machine's clock."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back. For durations and waits."""

    def sleep(self, seconds: float) -> None: ...


class RealClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class SteadyClock:
    """Seconds since 1970 as they were when it was made, and from then on as time goes by: it does not jump.

    For waits that are stored as moments, so that setting the machine's clock neither shortens nor lengthens them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.now() - clock.monotonic()

    def now(self) -> float:
        return self._ahead + self._clock.monotonic()
