"""`Look`: how many events of each partition a source of live mode reads in one round. Pure.

A barrier waits for the end of a piece, and orders of the driver for the end of a slice. So a round takes about `SECONDS`, with
the time that its events wait for room downstream, and is shared among the partitions.
"""

from __future__ import annotations

SECONDS = 0.1
FIRST = 1_024


class Look:
    def __init__(self) -> None:
        self._events = float(FIRST)  # of all partitions together

    def share(self, partitions: int, most: int) -> int:
        """How many events of each partition are read, at most `most`."""
        return max(1, min(most, int(self._events / max(1, partitions))))

    def took(self, seconds: float, was_full: bool, most: int) -> None:
        """A round took so long. `was_full`: a partition gave all of its share. `most` is that of all partitions."""
        if seconds > SECONDS:
            self._events = max(1.0, self._events * max(0.1, SECONDS / seconds))
        elif was_full and seconds < SECONDS / 2:
            self._events = min(float(most), self._events * 2)
