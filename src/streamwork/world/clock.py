"""The time, read from a clock that is passed in."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, UTC. Jumps when the machine's clock is set."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never decreases. For durations and waits."""

    def sleep(self, seconds: float) -> None: ...


class RealClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class SteadyClock:
    """The time when it was created, plus the monotonic time since: it does not jump.

    For deadlines that are stored as times: setting the machine's clock does not change the wait.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.now() - clock.monotonic()

    def now(self) -> float:
        return self._ahead + self._clock.monotonic()


class PatientClock:
    """Monotonic time for waits of one process for another one: at most `most` seconds between two looks count.

    A process that was itself suspended, or starved of CPU, has not given the other one that time.
    """

    def __init__(self, clock: Clock, most: float) -> None:
        self._clock = clock
        self._most = most
        self._looked = clock.monotonic()
        self._passed = 0.0

    def monotonic(self) -> float:
        now = self._clock.monotonic()
        self._passed += min(now - self._looked, self._most)
        self._looked = now
        return self._passed
