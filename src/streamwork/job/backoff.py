"""`Backoff`: whether and when a failed job is restarted."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from streamwork.components.duration import seconds
from streamwork.errors import WrongUse


class Backoff(msgspec.Struct, frozen=True):
    """Restart at most `max_restarts` times within `within`; wait `first`, then each time `factor` longer, up to `most`.

    Restarts longer ago than `within` do not count, so a job that fails once a day is always restarted, and quickly.
    """

    max_restarts: int = 5
    within: str | float = "10min"
    first: str | float = "1s"
    factor: float = 2.0
    most: str | float = "30s"

    def __post_init__(self) -> None:
        number = self.max_restarts
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise _wrong(f"max_restarts={number!r}", "use a whole number from 1 on; restart=None switches restarts off")
        if not isinstance(self.factor, int | float) or not 1 <= self.factor < float("inf"):
            raise _wrong(f"factor={self.factor!r}", "use a number from 1 on: the wait does not get shorter")
        if seconds(self.within) <= 0:
            raise _wrong(f"within={self.within!r}", 'use a duration above zero, such as "10min"')
        if seconds(self.most) < seconds(self.first):
            raise _wrong(f"most={self.most!r} is shorter than first={self.first!r}", "make it at least as long")

    def recent(self, restarts: Iterable[float], now: float) -> int:
        """The number of these restarts that still count. All times are from one monotonic clock."""
        window = seconds(self.within)
        return sum(now - moment < window for moment in restarts)

    def delay(self, restarts: Iterable[float], now: float) -> float | None:
        """Seconds to wait before the next restart, given the times of the earlier ones; None: give up."""
        before = self.recent(restarts, now)
        if before >= self.max_restarts:
            return None
        try:
            return min(seconds(self.most), seconds(self.first) * self.factor**before)
        except OverflowError:
            return seconds(self.most)


def _wrong(cause: str, action: str) -> WrongUse:
    return WrongUse("SW-JOB-SETTING", f"restart=Backoff({cause})", action)
