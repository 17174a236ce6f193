"""Intervals of one key that overlap or touch are one session: on columns as one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamwork.operators.windows import assign

FAR = 250_000_000_000_000_000  # about 8,000 years, in microseconds


def one_by_one(intervals: list[tuple[int, int, int]]) -> list[set[int]]:
    """The sets of numbers of intervals (key, start, end) that belong together."""
    found: list[tuple[int, int, int, set[int]]] = []
    for number, (key, start, end) in enumerate(intervals):
        meets = [one for one in found if one[0] == key and one[1] <= end and start <= one[2]]
        found = [one for one in found if one not in meets]
        low, high = min([start, *(one[1] for one in meets)]), max([end, *(one[2] for one in meets)])
        found.append((key, low, high, {number}.union(*(one[3] for one in meets))))
    return [numbers for *_, numbers in sorted(found, key=lambda one: one[:2])]


def on_columns(intervals: list[tuple[int, int, int]]) -> list[set[int]]:
    columns = np.array(intervals, np.int64).reshape(-1, 3).T
    groups = assign.sessions(columns[0].astype(np.int32), columns[1], columns[2])
    return [set(np.flatnonzero(groups.codes == number).tolist()) for number in range(groups.count)]


def interval(start: int, length: int, key: int) -> tuple[int, int, int]:
    return key, start, start + length


times = st.one_of(st.integers(-20, 20), st.sampled_from([-FAR, FAR, FAR + 3]))
intervals = st.lists(st.builds(interval, times, st.integers(0, 6), st.sampled_from([0, 1, 2, 1 << 20])), max_size=14)


@given(intervals)
def test_sessions(made: list[tuple[int, int, int]]) -> None:
    assert on_columns(made) == one_by_one(made)


def test_an_edge_that_is_off_by_one_is_found() -> None:
    """The negative control: ends that are one too early."""
    touching = [(0, 0, 5), (0, 5, 9)]
    assert on_columns(touching) == one_by_one(touching) == [{0, 1}]
    shorter = [(key, start, end - 1) for key, start, end in touching]
    assert on_columns(shorter) == [{0}, {1}]
