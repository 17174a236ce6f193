"""The pairs of a join within a time bound, computed with numpy over all events at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamwork.bench.epochs import Array
from streamwork.bench.timed_events import TimedEvents


class Pairs(NamedTuple):
    """The ids of rows that match, ordered by both."""

    left: Array
    right: Array

    def ordered(self) -> Pairs:
        order = np.lexsort((self.right, self.left))
        return Pairs(self.left[order], self.right[order])


def within(left: TimedEvents, right: TimedEvents, bound: int) -> Pairs:
    """Pairs with the same key whose times are at most `bound` apart."""
    begin = min(left.times.min(), right.times.min()) - bound
    wide = max(left.times.max(), right.times.max()) + bound - begin + 1
    at = right.keys * wide + (right.times - begin)
    order = np.argsort(at, kind="stable")
    sorted_at, here = at[order], left.keys * wide + (left.times - begin)
    low = np.searchsorted(sorted_at, here - bound, "left")
    high = np.searchsorted(sorted_at, here + bound, "right")
    counts = high - low
    firsts = np.repeat(low - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    matched = order[firsts + np.arange(counts.sum())]
    return Pairs(np.repeat(left.ids, counts), right.ids[matched]).ordered()
