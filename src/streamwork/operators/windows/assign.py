"""Which windows the events of a batch are in: pure functions on columns of microseconds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components.field_types import FIRST_TIME, LAST_TIME
from streamwork.components.times import microseconds
from streamwork.errors import JobFailed
from streamwork.operators.aggregates.columns import Groups
from streamwork.operators.windows.kinds import Assigner, Fixed, Sliding

Array = np.ndarray[Any, Any]
_FAR = -(1 << 61)
"""Watermarks before this are as good as none; a duration can be subtracted without overflow."""
_MOST = 1 << 62
_FIRST, _LAST = microseconds(FIRST_TIME), microseconds(LAST_TIME)


class Span(NamedTuple):
    """For each event, the numbers of the first and the last of its windows; window n begins at n * step.

    An event that is in time for none has a first that is beyond its last.
    """

    first: Array
    last: Array


def span(times: Array, watermarks: Array, window: Fixed | Sliding, lateness: int) -> Span:
    """The windows that take an event: those that have its time, and whose end + lateness the watermark has not reached."""
    last = times // window.step
    passed = (np.maximum(watermarks, _FAR) - (lateness + window.length)) // window.step
    natural = last if window.step == window.length else (times - window.length) // window.step + 1
    return Span(np.maximum(natural, passed + 1), last)


class Assigned(NamedTuple):
    """Pairs of an event and a window that takes it."""

    rows: Array
    starts: Array
    ends: Array


def assigned(
    times: Array, watermarks: Array, events: pa.RecordBatch, window: Assigner, lateness: int
) -> tuple[Assigned, Array]:
    """(the pairs, those of one event next to each other; the last end of each event's windows), for a user's windows."""
    rows, starts, ends = (np.asarray(one) for one in window.assign(times, events))
    name = type(window).__name__
    if any(one.dtype != np.int64 or one.shape != rows.shape for one in (rows, starts, ends)):
        raise _wrong(name, "other than three int64 arrays of one length", "(rows, starts, ends)")
    last = np.full(len(times), _FAR, np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= len(times)):
        raise _wrong(name, "rows that the batch does not have", "the place of an event")
    np.maximum.at(last, rows, ends)
    if bool((last <= times).any()) or bool((starts >= ends).any()):
        raise _wrong(name, "an event in no window that ends behind it", "at least one for every event")
    taken = ends + lateness > np.maximum(watermarks, _FAR)[rows]
    order = np.argsort(rows[taken], kind="stable")
    return Assigned(rows[taken][order], starts[taken][order], ends[taken][order]), last


def expanded(first: Array, last: Array) -> tuple[Array, Array]:
    """(row, number) of each number from `first` to `last` of each row."""
    counts = last - first + 1
    rows = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    return rows, first[rows] + (np.arange(len(rows)) - starts[rows])


def sessions(keys: Array, starts: Array, ends: Array) -> Groups:
    """The groups of intervals of one key that overlap or touch; numbered by key, then by time. `keys` are numbers from 0 on."""
    if not len(keys):
        return Groups(np.empty(0, np.int64), 0)
    begin, reach = _on_one_line(keys, starts, ends)
    order = np.argsort(begin)
    firsts = np.ones(len(order), bool)
    firsts[1:] = begin[order][1:] > np.maximum.accumulate(reach[order])[:-1]
    numbers = np.cumsum(firsts) - 1
    codes = np.empty(len(order), np.int64)
    codes[order] = numbers
    return Groups(codes, int(numbers[-1]) + 1)


def _on_one_line(keys: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Starts and ends as numbers, so that each interval of a key is before all intervals of the next key.

    Where such a number would not be an int64, times are replaced by their ranks.
    """
    base = int(starts.min())
    span = int(ends.max()) - base + 1
    if (int(keys.max()) + 1) * span >= _MOST:
        times, ranks = np.unique(np.concatenate((starts, ends)), return_inverse=True)
        base, span, starts, ends = 0, len(times), ranks[: len(starts)], ranks[len(starts) :]
    offsets = keys.astype(np.int64) * span - base
    return offsets + starts, offsets + ends


def check_range(starts: Array, ends: Array, step_id: str) -> None:
    """Refuse windows that begin or end outside of the years 1 to 9999: they have no datetime."""
    if len(starts) and (int(starts.min()) < _FIRST or int(ends.max()) > _LAST):
        raise JobFailed(
            "SW-WINDOW-RANGE",
            f"{step_id}: an event is in a window that begins or ends outside of the years 1 to 9999",
            "check the time of the event; max_ahead= on the source sets events aside that are far in the future",
            retryable=False,
            about_one_event=True,
        )


def _wrong(name: str, given: str, wanted: str) -> JobFailed:
    return JobFailed(
        "SW-WINDOW-ASSIGNER", f"{name}.assign gives {given}", f"give {wanted}", retryable=False, about_one_event=True
    )
