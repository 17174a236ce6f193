"""`Drain`: how many events may wait in a channel so that the receiver has processed them within `SECONDS`. Pure.

A checkpoint event is aligned behind what waits. So a bound in events alone makes checkpoints of a slow receiver long, and a small
one makes a fast receiver wait for its sender. The receiver's rate is measured while there is always something for it to take; where
it has emptied a channel that was full, it may be faster than that, and the number doubles.
"""

from __future__ import annotations

SECONDS = 0.25
FIRST = 2_048
LEAST = 16
MOST = 1 << 20
WINDOW = 0.1
"""Seconds that a rate is measured for, at least."""


class Drain:
    def __init__(self) -> None:
        self.events = FIRST
        self._since: float | None = None  # something has waited since then
        self._taken = 0  # since then
        self._was_full = False

    def waits(self, now: float) -> None:
        """Something waits now."""
        if self._since is None:
            self._since, self._taken, self._was_full = now, 0, False

    def fills(self) -> None:
        """It is full."""
        self._was_full = True

    def took(self, events: int, left: int, now: float) -> None:
        """So many were taken, so many are left."""
        if self._since is None:
            return
        self._taken += events
        seconds = now - self._since
        if seconds >= WINDOW:
            self.events = max(LEAST, min(round(self._taken / seconds * SECONDS), 2 * self.events, MOST))
        elif left <= 0 and self._was_full:
            self.events = min(MOST, 2 * self.events)
        if seconds >= WINDOW or seconds < 0 or left <= 0:
            self._since, self._taken, self._was_full = (None if left <= 0 else now), 0, False
