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
