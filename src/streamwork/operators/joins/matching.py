"""Which rows of two sets of columns belong together. Pure functions on numpy arrays: no loop over rows.

A code is a small number that stands for a key: rows have equal keys where they have equal codes. `NO_KEY` stands for a key
with a null, which matches nothing. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.batches import one_array
from streamwork.components.hashing import distinct_numbers

Array = np.ndarray[Any, Any]
NO_KEY = -1
NO_ROW = -1
_MOST = 1 << 62


def codes_of(*sides: Sequence[pa.Array]) -> list[Array]:
    """The codes of the keys of several sets of rows; a side is its key columns."""
    sizes = [len(columns[0]) for columns in sides]
    codes: Array | None = None
    for parts in zip(*sides, strict=True):
        encoded = one_array(parts, parts[0].type).dictionary_encode()
        found = encoded.indices.fill_null(NO_KEY).to_numpy().astype(np.int64)
        if codes is None:
            codes = found
            continue
        absent = (codes == NO_KEY) | (found == NO_KEY)
        pairs = codes * max(len(encoded.dictionary), 1) + found
        codes = pa.array(pairs).dictionary_encode().indices.to_numpy().astype(np.int64)  # so that no product overflows
        codes[absent] = NO_KEY
    assert codes is not None, "a key has a field"
    return np.split(codes, np.cumsum(sizes)[:-1])


def equal(left: Array, right: Array) -> tuple[Array, Array]:
    """(left row, right row) of all rows with equal codes, ordered by left row, then by right row."""
    order, known = _with_key(right)
    counts = np.bincount(known, minlength=int(left.max(initial=NO_KEY)) + 1)
    if counts.max(initial=0) <= 1:
        return _single(left, order, known, len(counts))
    starts = np.cumsum(counts) - counts
    order = order[np.argsort(known, kind="stable")]
    found = np.where(left == NO_KEY, 0, counts[left] if len(counts) else 0)
    rows, places = expanded(starts[left] if len(counts) else np.zeros_like(left), found)
    return rows, order[places]


def _single(left: Array, order: Array, known: Array, codes: int) -> tuple[Array, Array]:
    """`equal` where each code is in one right row at most: a table by code instead of a sort."""
    places = np.full(codes + 1, NO_ROW, np.int64)  # the last one is that of `NO_KEY`
    places[known] = order
    found = places[left]
    if len(found) and found.min() > NO_ROW:
        return np.arange(len(left)), found
    rows = np.flatnonzero(found > NO_ROW)
    return rows, found[rows]


def within(left: Array, left_times: Array, right: Array, right_times: Array, distance: int) -> tuple[Array, Array]:
    """(left row, right row) of all rows with equal codes whose times are at most `distance` apart, ordered by left row, then
    by the right row's time, then by right row.
    """
    order, known = _with_key(right)
    if not len(left) or not len(order):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    lows, highs, times, span = _compact(
        left_times - distance, left_times + distance, right_times[order], int(max(left.max(), known.max()))
    )
    numbers = known * span + times
    by_time = np.argsort(numbers, kind="stable")
    numbers = numbers[by_time]
    starts = np.searchsorted(numbers, left * span + lows)
    counts = np.searchsorted(numbers, left * span + highs, "right") - starts
    counts[left == NO_KEY] = 0
    rows, places = expanded(starts, counts)
    return rows, order[by_time[places]]


def as_of(left: Array, left_times: Array, right: Array, right_times: Array) -> Array:
    """For each left row, the right row with its code that has the largest time at or before its own; the last of several.
    `NO_ROW` where there is none.
    """
    order, known = _with_key(right)
    if not len(left) or not len(order):
        return np.full(len(left), NO_ROW, np.int64)
    _, moments, times, span = _compact(left_times, left_times, right_times[order], int(max(left.max(), known.max())))
    numbers = known * span + times
    by_time = np.argsort(numbers, kind="stable")
    places = np.searchsorted(numbers[by_time], left * span + moments, "right") - 1
    found = order[by_time[np.maximum(places, 0)]]
    return np.where((places >= 0) & (left != NO_KEY) & (right[found] == left), found, NO_ROW)


def _with_key(codes: Array) -> tuple[Array, Array]:
    """(the rows that have a key, their codes)"""
    rows = np.flatnonzero(codes != NO_KEY)
    return rows, codes[rows]


def _compact(lows: Array, highs: Array, times: Array, largest: int) -> tuple[Array, Array, Array, int]:
    """Times as numbers below `span`, in the same order. ``code * span + number`` is an int64 for codes up to `largest`."""
    base = min(int(lows.min()), int(times.min()))
    span = max(int(highs.max()), int(times.max())) - base + 1
    if (largest + 2) * span < _MOST:
        return lows - base, highs - base, times - base, span
    known = distinct_numbers(times)
    low, high = np.searchsorted(known, lows), np.searchsorted(known, highs, "right") - 1
    return low, high, np.searchsorted(known, times), len(known) + 1


def expanded(starts: Array, counts: Array) -> tuple[Array, Array]:
    """(row, place) for each of the `counts` places from `starts` on."""
    rows = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    places = np.arange(len(rows)) + np.repeat(starts - ends + counts, counts)
    return rows, places
