"""The results of windows, computed with numpy over all events at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamwork.bench.epochs import Array
from streamwork.bench.timed_events import TimedEvents


class WindowResults(NamedTuple):
    """One row per key and window, ordered by both. Times are microseconds."""

    keys: Array
    starts: Array
    ends: Array
    views: Array
    quarters: Array

    def ordered(self) -> WindowResults:
        order = np.lexsort((self.starts, self.keys))
        return WindowResults(*(column[order] for column in self))


def sliding(events: TimedEvents, size: int, slide: int) -> WindowResults:
    """Windows of `size`, which begin at each multiple of `slide`."""
    shifts = range(-(-size // slide))
    starts = np.concatenate([(events.times // slide - shift) * slide for shift in shifts])
    held = np.tile(events.times, len(shifts)) < starts + size
    keys = np.tile(events.keys, len(shifts))[held]
    starts, quarters = starts[held], np.tile(events.quarters, len(shifts))[held]
    return _summed(np.lexsort((starts, keys)), keys, starts, starts + size, quarters)


def fixed(events: TimedEvents, size: int) -> WindowResults:
    return sliding(events, size, size)


def session(events: TimedEvents, gap: int) -> WindowResults:
    """An event belongs to the session of the event before it if that was at most `gap` ago."""
    order = np.lexsort((events.times, events.keys))
    keys, times = events.keys[order], events.times[order]
    first = np.ones(len(keys), bool)
    first[1:] = (keys[1:] != keys[:-1]) | (times[1:] - times[:-1] > gap)
    of = np.cumsum(first) - 1
    ends = times[np.append(np.flatnonzero(first)[1:], len(times)) - 1] + gap if len(times) else times
    starts = times[first]
    return WindowResults(
        keys[first], starts, ends, np.bincount(of), np.bincount(of, events.quarters[order]).astype(np.int64)
    )


def _summed(order: Array, keys: Array, starts: Array, ends: Array, quarters: Array) -> WindowResults:
    """Add up the rows with the same key and start, which `order` brings together."""
    keys, starts, ends, quarters = keys[order], starts[order], ends[order], quarters[order]
    first = np.ones(len(keys), bool)
    first[1:] = (keys[1:] != keys[:-1]) | (starts[1:] != starts[:-1])
    of = np.cumsum(first) - 1
    return WindowResults(
        keys[first], starts[first], ends[first], np.bincount(of), np.bincount(of, quarters).astype(np.int64)
    )
