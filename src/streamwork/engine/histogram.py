"""How long events took, as a histogram with fixed bounds: those of several tasks can be added.

`Histogram`   a value, as readers and files have it
`Tally`       the same while it grows: one thread adds, others may read

The bounds are Renard's series R20, at most 14.3 % apart. A percentile is the geometric mean of the bounds around it, so it is wrong
by at most 7 %, from 10 microseconds to 1,000 seconds. Below, it is given as 10 microseconds, above as the longest time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

_SERIES = (1, 1.12, 1.25, 1.4, 1.6, 1.8, 2, 2.24, 2.5, 2.8, 3.15, 3.55, 4, 4.5, 5, 5.6, 6.3, 7.1, 8, 9)
BOUNDS: tuple[float, ...] = (*(float(f"{n}e{power}") for power in range(-5, 3) for n in _SERIES), 1000.0, math.inf)
"""The upper bounds of the buckets, in seconds."""


Bucket = Annotated[int, msgspec.Meta(ge=0, lt=len(BOUNDS))]  # checked where a file is read
Events = Annotated[int, msgspec.Meta(ge=0)]


class Histogram(msgspec.Struct, frozen=True):
    counts: dict[Bucket, Events] = {}  # number of the bucket -> events; empty ones are left out
    seconds: float = 0.0  # of all events together
    longest: float = 0.0

    @property
    def events(self) -> int:
        return sum(self.counts.values())

    def add(self, seconds: float, events: int) -> Histogram:
        """With so many events more, each of which took so long."""
        return self.merge(Histogram({bisect_left(BOUNDS, seconds): events}, seconds * events, seconds))

    def merge(self, other: Histogram) -> Histogram:
        counts = dict(self.counts)
        for bucket, events in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + events
        return Histogram(counts, self.seconds + other.seconds, max(self.longest, other.longest))

    def percentile(self, part: float) -> float | None:
        """The time within which this part of the events came: 0.99 for 99 %. None if there are no events."""
        rank, passed = max(1, math.ceil(part * self.events)), 0
        for bucket in sorted(self.counts):
            passed += self.counts[bucket]
            if passed >= rank:
                return min(self.longest, _middle(bucket))
        return None

    def within(self, bounds: Sequence[float]) -> tuple[int, ...]:
        """How many events took at most so long, for each of these bounds, which are some of `BOUNDS`."""
        return tuple(
            sum(events for bucket, events in self.counts.items() if BOUNDS[bucket] <= bound) for bound in bounds
        )


def _middle(bucket: int) -> float:
    """Of the times in a bucket."""
    if bucket == 0:
        return BOUNDS[0]
    upper = BOUNDS[bucket]
    return upper if upper == math.inf else math.sqrt(BOUNDS[bucket - 1] * upper)


def merged(several: Iterable[Histogram]) -> Histogram:
    found = Histogram()
    for one in several:
        found = found.merge(one)
    return found


class Tally:
    __slots__ = ("_counts", "_longest", "_seconds")

    def __init__(self) -> None:
        self._counts = [0] * len(BOUNDS)
        self._seconds = self._longest = 0.0

    def add(self, seconds: float, events: int) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += events
        self._seconds += seconds * events
        if seconds > self._longest:
            self._longest = seconds

    def value(self) -> Histogram:
        counts = {bucket: events for bucket, events in enumerate(list(self._counts)) if events}
        return Histogram(counts, self._seconds, self._longest)
