"""The slices of a backlog fill the target, whatever events and epochs cost; results do not depend on it.

A machine whose epochs cost a fixed part and a part for each event is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample import Payment, Summing, payments
from streamwork import Job, ListSource, SqliteSink
from streamwork.epoch.slice_size import FIRST, FIRST_AT_MOST_ONCE, SliceSize
from streamwork.errors import WrongUse
from streamwork.hosts.local import LocalHost
from streamwork.testing import Pause, explore, run

Cost = Callable[[int, int], float]  # epoch, events -> seconds
fixed_parts = st.floats(0.001, 2.0)
costs = st.floats(1e-6, 1e-2)


def epochs(size: SliceSize, cost: Cost, count: int = 40, left_over: bool = True) -> list[float]:
    """The seconds of each epoch, in an endless backlog, or with as much input as a slice takes."""
    found = []
    for epoch in range(count):
        events = size.events
        found.append(cost(epoch, events))
        size.measured(events, found[-1], left_over, events)
    return found


def settled(took: list[float]) -> float:
    """The seconds of an epoch at the end. Now and then half the events are tried (`fixed_cost`)."""
    return median(took[-9:])


@given(fixed=fixed_parts, per_event=costs)
def test_an_epoch_of_a_backlog_takes_the_target(fixed: float, per_event: float) -> None:
    def cost(_: int, events: int) -> float:
        return fixed + per_event * events

    took = epochs(SliceSize(checkpoint_every=1.0), cost)
    assert settled(took) == pytest.approx(10.0, rel=0.1), "ten intervals"
    assert max(took[1:]) <= 11.0 or took[1] == max(took)
    steady = epochs(SliceSize(checkpoint_every=1.0), cost, left_over=False)
    assert steady[-1] == pytest.approx(1.0, rel=0.1) or fixed > 0.5


@given(fixed=fixed_parts, per_event=costs, target=st.floats(0.5, 60))
def test_a_target_that_is_given_holds_up_to_ten_intervals(fixed: float, per_event: float, target: float) -> None:
    took = settled(epochs(SliceSize(1.0, target), lambda _, events: fixed + per_event * events))
    assert took == pytest.approx(min(target, 10.0), rel=0.1) or fixed > target / 2


@given(fixed=st.floats(0.001, 0.4), per_event=costs)
def test_under_at_most_once_a_slice_takes_one_interval_at_most(fixed: float, per_event: float) -> None:
    size = SliceSize(1.0, at_most_once=True)
    took = epochs(size, lambda _, events: fixed + per_event * events)
    assert max(took[3:]) <= 1.15 and (settled(took) >= 0.85 or size.events == 1)
    assert took[0] == fixed + per_event * FIRST_AT_MOST_ONCE, "the first one is small"


@given(per_event=costs, factor=st.integers(2, 20))
def test_a_sink_that_slows_makes_one_long_epoch_and_then_the_target_again(per_event: float, factor: int) -> None:
    took = epochs(SliceSize(1.0), lambda n, events: 0.05 + per_event * events * (factor if 20 <= n < 40 else 1), 60)
    assert max(took[21:40]) <= 11.0 and took[20] <= 11.0 * factor
    assert settled(took) == pytest.approx(10.0, rel=0.2), "and when it is as fast as before"


@given(fixed=st.floats(0.2, 2.0), per_event=st.floats(1e-5, 1e-3))
def test_an_interval_shorter_than_the_fixed_cost_does_not_end_in_slices_of_one_event(
    fixed: float, per_event: float
) -> None:
    size = SliceSize(0.1, at_most_once=True)
    epochs(size, lambda _, events: fixed + per_event * events)
    assert size.events >= 10, "fewer would not be quicker"


@given(noise=st.lists(st.floats(0.7, 1.4), min_size=60, max_size=60), per_event=costs)
def test_noise_does_not_make_epochs_long(noise: list[float], per_event: float) -> None:
    took = epochs(SliceSize(1.0), lambda n, events: (0.05 + per_event * events) * noise[n], 60)
    assert max(took[10:]) <= 22.0, "twice the noise"


def test_without_an_interval_slices_have_no_size() -> None:
    assert not SliceSize(0.0).is_known and SliceSize(0.0, 2.0).is_known
    assert SliceSize(1.0).events == FIRST


def test_a_target_is_a_duration_above_zero() -> None:
    assert Job("a", target_epoch="5s").settings.target_epoch == 5.0
    with pytest.raises(WrongUse, match="target_epoch"):
        Job("a", target_epoch=0)


# ---- in the planner -----------------------------------------------------------------------------------------------


def slow_reading(count: int, seconds: float) -> list[Any]:
    """Events that take virtual time to read."""
    return [one for event in payments(count) for one in (Pause(seconds), event)]


def summing(**settings: Any) -> Job:
    job = Job("sized", **settings)
    source = job.source(ListSource([], Payment), id="payments")
    source.apply(Summing(), key="card", id="sums").sink(SqliteSink("unused.db", "out"), id="out")
    return job


def sizes(job: Job, inputs: list[Any], most: int) -> list[int]:
    """The events of each epoch."""
    seen = [0]

    def note(result: Any) -> bool:
        seen.append(result.processed["sums"])
        return False

    run(job, {"payments": inputs}, epoch_events=most, until=note)
    return [after - before for before, after in pairwise(seen)]


def test_the_planner_sizes_slices_by_their_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    backlog = slow_reading(6_000, 0.01)
    plain = sizes(summing(), backlog, most=2_000)
    assert plain == [2_000, 2_000, 2_000], "control: without sizes, `max_events` alone limits a slice"
    monkeypatch.setattr(LocalHost, "sizes_slices", True)
    found = sizes(summing(), backlog, most=2_000)
    assert found[:2] == [2_000, 2_000], "two epochs are planned before the first is measured"
    assert found[2:6] == pytest.approx([100, 200, 400, 800], rel=0.1), "one second, two, four, eight"
    assert sizes(summing(checkpoint_every=0), backlog, most=2_000) == plain


def test_results_do_not_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalHost, "sizes_slices", True)
    told = explore(summing(), {"payments": slow_reading(60, 0.2)}, seeds=6)
    assert told.resumes > 0
