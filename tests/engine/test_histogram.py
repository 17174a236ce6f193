"""Histograms of latencies: percentiles against the sorted values, and sums of several."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamwork.engine.histogram import BOUNDS, Histogram, Tally, merged
from streamwork.observe.latency import BOUNDS as SHOWN

MOST_WRONG = 0.07
seconds = st.one_of(st.floats(1e-5, 1000.0), st.sampled_from(BOUNDS[:-1]))
given_times = st.lists(st.tuples(seconds, st.integers(1, 50)), min_size=1, max_size=40)
parts = st.sampled_from((0.001, 0.5, 0.9, 0.99, 0.999, 1.0))


def exact(times: list[tuple[float, int]], part: float) -> float:
    every = sorted(one for one, events in times for _ in range(events))
    return every[max(1, math.ceil(part * len(every))) - 1]


def of(times: list[tuple[float, int]]) -> Histogram:
    found = Histogram()
    for one, events in times:
        found = found.add(one, events)
    return found


@given(given_times, parts)
def test_a_percentile_is_wrong_by_at_most_seven_percent(times: list[tuple[float, int]], part: float) -> None:
    found, true = of(times).percentile(part), exact(times, part)
    assert found is not None and abs(found - true) <= MOST_WRONG * true


def test_control_wider_buckets_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamwork.engine.histogram.BOUNDS", BOUNDS[::2])
    times = [(1.001e-2, 1), (1.0, 1)]
    found, true = of(times).percentile(0.5), exact(times, 0.5)
    assert found is not None and abs(found - true) > MOST_WRONG * true


@given(given_times, given_times)
def test_histograms_of_two_tasks_are_one(one: list[tuple[float, int]], other: list[tuple[float, int]]) -> None:
    together, whole = merged([of(one), of(other)]), of(one + other)
    assert together.counts == whole.counts and together.longest == whole.longest
    assert together.events == sum(events for _, events in one + other)
    assert math.isclose(together.seconds, whole.seconds)


@given(given_times)
def test_a_tally_grows_to_the_same_histogram(times: list[tuple[float, int]]) -> None:
    tally = Tally()
    for one, events in times:
        tally.add(one, events)
    assert tally.value() == of(times)
    assert msgspec.json.decode(msgspec.json.encode(tally.value()), type=Histogram) == tally.value()


@given(given_times)
def test_the_bounds_of_metrics_count_the_events_below_them(times: list[tuple[float, int]]) -> None:
    counted = of(times).within(SHOWN)
    assert counted == tuple(sum(events for one, events in times if one <= bound) for bound in SHOWN)


def test_times_beyond_the_bounds() -> None:
    assert Histogram().percentile(0.5) is None
    short, long = Histogram().add(0.0, 3), Histogram().add(5000.0, 2)
    assert (short.percentile(0.5), long.percentile(0.5)) == (0.0, 5000.0), "the longest is known exactly"
    assert short.merge(long).percentile(0.5) == BOUNDS[0]
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"counts": {"%d": 1}}' % len(BOUNDS), type=Histogram)


def test_the_bounds_are_in_order_and_close() -> None:
    assert all(1 < after / before <= 8 / 7 + 1e-9 for before, after in pairwise(BOUNDS[:-1]))
    assert set(SHOWN) <= set(BOUNDS)
