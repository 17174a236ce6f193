"""Where the cost of an epoch is mostly fixed, the slices of a backlog grow until their events cost something.

Simulated machines are the oracle: a fixed cost, a cost of each event, noise, changes, a sink; plans that are one epoch ahead of
what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import median
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamwork.epoch import fixed_cost
from streamwork.epoch.fixed_cost import NEXT, FixedCost, Phase, Taken
from streamwork.epoch.slice_size import GROWTH, SliceSize

Cost = Callable[[int, int], float]  # epoch, events -> seconds
MOST = 10.0
above = st.floats(10.1, 60.0)  # fixed costs that are longer than the target
costs = st.floats(1e-6, 1e-2)
lags = st.sampled_from([0, 1])


class Epoch(NamedTuple):
    events: int
    seconds: float
    phase: Phase


def lived(cost: Cost, count: int = 120, lag: int = 0, at_most_once: bool = False) -> list[Epoch]:
    """The epochs of an endless backlog, with checkpoints each second. `lag` epochs are planned before one is measured."""
    size = SliceSize(1.0, at_most_once=at_most_once)
    planned, found = [], []
    for number in range(count + lag):
        planned.append(size.events)
        if len(planned) > lag:
            events = planned.pop(0)
            found.append(Epoch(events, cost(number, events), size._fixed.phase))
            size.measured(events, found[-1].seconds, True, events)
    return found


def linear(fixed: float, per_event: float) -> Cost:
    return lambda _, events: fixed + per_event * events


def rate(epochs: list[Epoch]) -> float:
    return sum(one.events for one in epochs) / sum(one.seconds for one in epochs)


@given(fixed=above, per_event=costs, lag=lags)
@example(fixed=10.1, per_event=1e-6, lag=0)
def test_a_slice_grows_until_its_events_cost_a_share_of_the_fixed_cost(
    fixed: float, per_event: float, lag: int
) -> None:
    end = lived(linear(fixed, per_event), lag=lag)[60:]
    assert max(one.seconds for one in end) <= 3 * fixed, "also where twice the events are tried"
    assert median(one.seconds for one in end) <= 5 / 3 * fixed + 0.01
    assert rate(end) >= 0.2 / per_event or per_event > fixed, "of what a slice without end would have"


@given(fixed=above, per_event=costs, lag=lags)
def test_the_size_does_not_flap(fixed: float, per_event: float, lag: int) -> None:
    end = lived(linear(fixed, per_event), lag=lag)[60:]
    usual = max({one.events for one in end}, key=lambda events: sum(one.events == events for one in end))
    assert sum(one.events == usual for one in end) >= 0.7 * len(end)
    assert {one.events for one in end} <= {usual, 2 * usual, usual // 2}


@given(fixed=st.floats(7.0, 9.0), per_event=costs, lag=lags)
def test_a_fixed_cost_below_the_target_does_not_exceed_it(fixed: float, per_event: float, lag: int) -> None:
    end = lived(linear(fixed, per_event), lag=lag)[60:]
    assert max(one.seconds for one in end) <= 13.0, "more events, tried once"
    assert sorted(one.seconds for one in end)[len(end) * 9 // 10] <= 10.01
    assert rate(end) >= 0.25 * (MOST - fixed) / per_event / MOST or (MOST - fixed) / per_event < 100


@given(fixed=st.floats(1.1, 5.0), per_event=costs)
def test_under_at_most_once_the_target_is_one_interval(fixed: float, per_event: float) -> None:
    end = lived(linear(fixed, per_event), at_most_once=True)[60:]
    assert median(one.seconds for one in end) <= 5 / 3 * fixed + 0.01
    assert rate(end) >= 0.2 / per_event


@given(fixed=st.floats(0.01, 2.0), per_event=st.floats(1e-6, 1e-3), factor=st.integers(2, 50), lag=lags)
def test_a_sink_that_is_bound_by_its_rows_gets_no_longer_epochs(
    fixed: float, per_event: float, factor: int, lag: int
) -> None:
    """Each row costs the sink a multiple of what it costs to compute: the cost is not fixed, and half is half."""
    found = lived(linear(fixed, per_event * (1 + factor)), lag=lag)[10:]
    assert max(one.seconds for one in found) <= 11.0
    assert all(one.phase in (Phase.FREE, Phase.HALF) for one in found)


@given(seed=st.integers(0, 10_000), fixed=st.floats(12.0, 40.0), per_event=costs, lag=lags)
def test_noise_of_a_fifth_costs_little(seed: int, fixed: float, per_event: float, lag: int) -> None:
    noise = Random(seed)
    found = lived(lambda _, events: (fixed + per_event * events) * noise.uniform(0.8, 1.2), 300, lag)[100:]
    assert max(one.seconds for one in found) <= 7 * fixed
    assert sum(one.seconds for one in found) / len(found) <= 2.5 * fixed
    assert rate(found) >= 0.05 / per_event


@given(seed=st.integers(0, 10_000), per_event=costs, lag=lags)
def test_a_machine_that_is_busy_for_a_while_is_forgotten(seed: int, per_event: float, lag: int) -> None:
    """The fixed cost rises to three times the target and falls again: epochs fill the target as before."""
    noise = Random(seed)

    def cost(epoch: int, events: int) -> float:
        fixed = 30.0 if 40 <= epoch < 120 else 0.2
        return (fixed + per_event * events) * noise.uniform(0.95, 1.05)

    found = lived(cost, 200, lag)
    assert rate(found[-20:]) == pytest.approx(rate(found[20:40]), rel=0.25)


@given(per_event=st.floats(1e-6, 1e-4), lag=lags)
def test_events_that_become_dear_while_a_size_is_held_make_few_long_epochs(per_event: float, lag: int) -> None:
    found = lived(lambda epoch, events: 20.0 + per_event * (100 if epoch >= 60 else 1) * events, 140, lag)
    longest = max(one.seconds for one in found[60:])
    assert sum(one.seconds > 100 for one in found[60:]) <= 5 * (1 + lag), longest
    assert max(one.seconds for one in found[110:]) <= 60.0


@given(seconds=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=80), lag=lags)
def test_whatever_epochs_cost_a_slice_has_events_and_grows_within_bounds(seconds: list[float], lag: int) -> None:
    found = lived(lambda epoch, _: seconds[epoch % len(seconds)], len(seconds), lag)
    for before, one in zip(found, found[1 + lag :], strict=False):
        assert 1 <= one.events <= GROWTH * max(50_000, *(other.events for other in found)), before


def test_every_phase_is_reached_from_another() -> None:
    assert set(NEXT) == set(Phase) == {phase for after in NEXT.values() for phase in after}


def test_a_slice_that_something_else_limits_is_not_doubled_again() -> None:
    """`max_events` limits it: more are asked for, and no more come."""
    found = FixedCost(10.0)
    for _ in range(40):
        found.measured(Taken(found.size or 1_000, 100, 20.0))
    assert found.size is not None and found.size <= 2_000


def test_control_without_trying_half_a_slice_shrinks_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    good = lived(linear(11.0, 1e-5))[-1].events
    monkeypatch.setattr(FixedCost, "_try_half", lambda *_: None)
    bad = lived(linear(11.0, 1e-5))[-1].events
    assert good > 100_000 and bad < 1_000


def test_control_without_verifying_epochs_become_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_cost, "SAME", 1e-9)
    monkeypatch.setattr(fixed_cost, "MOST", 1e9)
    assert max(one.seconds for one in lived(linear(11.0, 1e-5))) > 1_000
