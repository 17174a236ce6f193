"""When to start again: the policy alone, on made-up times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamwork import Backoff, Job, WrongUse

policies = st.builds(
    Backoff,
    max_restarts=st.integers(1, 12),
    within=st.floats(1, 1000),
    first=st.floats(0, 5),
    factor=st.floats(1, 10),
    most=st.floats(5, 100),
)
moments = st.lists(st.floats(0, 5000), max_size=40)


@given(policies, moments, st.floats(5000, 6000))
def test_it_gives_up_exactly_when_the_window_is_full(policy: Backoff, restarts: list[float], now: float) -> None:
    recent = [moment for moment in restarts if now - moment < float(policy.within)]
    delay = policy.delay(restarts, now)
    assert (delay is None) == (len(recent) >= policy.max_restarts)
    if delay is not None:
        assert float(policy.first) <= delay <= float(policy.most)


@given(policies, st.floats(0, 0.5))
def test_failing_on_and_on_waits_ever_longer_and_ends(policy: Backoff, life: float) -> None:
    """A job that fails soon after each start."""
    now, restarts, delays = 0.0, [], []
    while (delay := policy.delay(restarts, now)) is not None and len(delays) < 100:
        delays.append(delay)
        now += delay
        restarts.append(now)
        now += life
    kept_back = sum(delays) + life * len(delays) < float(policy.within)
    if kept_back:  # all of them within the window
        assert len(delays) == policy.max_restarts
        assert delays == sorted(delays)


@given(policies, st.integers(1, 200))
def test_failing_seldom_is_forgiven_for_ever(policy: Backoff, times: int) -> None:
    restarts: list[float] = []
    for number in range(times):
        now = number * (float(policy.within) + 1)
        assert policy.delay(restarts, now) == pytest.approx(min(float(policy.first), float(policy.most)))
        restarts.append(now)


def test_the_default() -> None:
    delays = [Backoff().delay([0.0] * count, 1.0) for count in range(6)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, None]
    assert Job("j").settings.restart == Backoff()
    assert Job("j", restart=None).settings.restart is None


def test_waits_do_not_overflow() -> None:
    assert Backoff(max_restarts=10_000, factor=10.0).delay([0.0] * 9_999, 1.0) == 30.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_restarts": 0},
        {"max_restarts": True},
        {"max_restarts": 2.5},
        {"within": 0},
        {"within": "soon"},
        {"first": -1},
        {"factor": 0.5},
        {"factor": float("inf")},
        {"first": "1min", "most": "30s"},
    ],
)
def test_wrong_values_are_refused_where_they_are_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongUse, match="SW-JOB-SETTING"):
        Backoff(**wrong)


@pytest.mark.parametrize("wrong", [{"retain": 0}, {"retain": "3"}, {"lease": 0}, {"lease": "-1s"}, {"restart": 5}])
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongUse, match="SW-JOB-SETTING"):
        Job("j", **wrong)
