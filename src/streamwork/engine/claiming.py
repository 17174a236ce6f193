"""Claims of what a source task reads all the time, under at-most-once (`epoch.claims` has the steps).

A claim is durable before anything up to it is processed. It is about 100 ms ahead, so that most pieces need no new one, and it is
renewed in another thread when half of it is used. A task that reads nothing for a while, or leaves, takes back what it has not
used: what comes later was never read.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

AHEAD_SECONDS = 0.1
REST_SECONDS = 1.0
"""After so long without input, what was not used is taken back."""
LEAST_EVENTS = 100
"""A claim is at least so many offsets ahead."""
Write = Callable[[dict[str, int]], None]
Later = Callable[[Callable[[], None]], "Future[None]"]


class Claiming:
    def __init__(self, write: Write, later: Later, clock: Callable[[], float]) -> None:
        """`write` makes offsets durable, `later` calls a function in another thread, one after the other."""
        self._write = write
        self._later = later
        self._clock = clock
        self._claimed: dict[str, int] = {}  # durable
        self._coming: Future[None] | None = None  # a claim that is being written
        self._wanted: dict[str, int] = {}
        self._seen: dict[str, tuple[float, int]] = {}  # when a claim was made, and up to where was read then
        self._used: dict[str, int] = {}  # up to where was read, or will be now
        self._used_at = clock()

    def reach(self, partition: str, end: int) -> None:
        """Returns when everything before `end` is claimed."""
        if self._coming is not None and self._coming.done():
            self._settle()
        if end > self._claimed.get(partition, 0) and self._coming is not None:
            self._settle()
        if end > self._claimed.get(partition, 0):
            self._claim(partition, end).result()
            self._settle()
        elif self._coming is None and self._claimed[partition] - end < self._ahead(partition, end) // 2:
            self._claim(partition, end)
        self._used[partition] = end
        self._used_at = self._clock()

    def rest(self) -> None:
        """There is nothing to read now."""
        if self._clock() < self._used_at + REST_SECONDS:
            return
        if self._coming is not None and self._coming.done():
            self._settle()
        if self._coming is None and self._claimed != self._used:
            self._wanted = wanted = dict(self._used)
            self._coming = self._later(lambda: self._write(wanted))

    def release(self) -> None:
        """Nothing more will be read. Returns when no more is claimed than was."""
        if self._coming is not None:
            self._settle()
        if self._claimed != self._used:
            self._write(dict(self._used))
            self._claimed = dict(self._used)

    def _ahead(self, partition: str, end: int) -> int:
        """How many offsets are read in `AHEAD_SECONDS`, by the rate since the last claim."""
        when, at = self._seen.get(partition, (self._clock(), end))
        passed = max(self._clock() - when, AHEAD_SECONDS)
        return max(LEAST_EVENTS, round((end - at) * AHEAD_SECONDS / passed))

    def _claim(self, partition: str, end: int) -> Future[None]:
        self._wanted = {**self._claimed, partition: end + self._ahead(partition, end)}
        self._seen[partition] = self._clock(), end
        wanted = self._wanted
        self._coming = self._later(lambda: self._write(wanted))
        return self._coming

    def _settle(self) -> None:
        """The claim that is being written is durable."""
        assert self._coming is not None
        self._coming.result()
        self._claimed, self._coming = self._wanted, None
