"""A virtual clock: time advances only by `sleep` and `set_by`."""

from __future__ import annotations

START = 1_767_225_600.0  # 2026-01-01, UTC


class VirtualClock:
    def __init__(self, now: float = START) -> None:
        self._now = now

        self._set = 0.0

    def now(self) -> float:
        return self._now + self._set

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def set_by(self, seconds: float) -> None:
        """Set the clock forward or back. Monotonic time is unaffected."""
        self._set += seconds
