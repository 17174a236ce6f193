"""How long a live task rests between two rounds, without a clock."""

from __future__ import annotations

import pytest

from streamwork.engine.pace import FIRST_WAIT, GATHER_SECONDS, LONGEST_WAIT, SHARE, Pace, Rest


def settled(worked: float) -> Pace:
    """After many busy rounds that took so long."""
    pace = Pace()
    for _ in range(200):
        pace.rest(True, worked)
    return pace


@pytest.mark.parametrize("worked", [0.000_01, 0.000_1, GATHER_SECONDS * SHARE / 2])
def test_short_rounds_take_their_share_of_the_time(worked: float) -> None:
    rest = settled(worked).rest(True, worked)
    assert worked / (worked + rest.seconds) == pytest.approx(SHARE)
    assert not rest.ends_early, "events gather"


@pytest.mark.parametrize("worked", [GATHER_SECONDS * SHARE, GATHER_SECONDS * 0.9])
def test_events_do_not_gather_for_longer_than_the_limit(worked: float) -> None:
    assert settled(worked).rest(True, worked).seconds == pytest.approx(GATHER_SECONDS - worked)


@pytest.mark.parametrize("worked", [GATHER_SECONDS, 1.0])
def test_a_task_with_a_backlog_does_not_rest(worked: float) -> None:
    assert settled(worked).rest(True, worked).seconds == 0


def test_one_long_round_does_not_change_the_pace_of_short_ones() -> None:
    """Negative control: an average over few rounds would."""
    pace, short = settled(0.000_1), 0.000_1
    usual = pace.rest(True, short).seconds
    pace.rest(True, 0.001)
    assert pace.rest(True, short).seconds < 2.5 * usual


def test_an_idle_task_polls_less_and_less_often_until_there_is_work() -> None:
    pace = Pace()
    waits = [pace.rest(False, 0.000_1) for _ in range(5)]
    assert [one.seconds for one in waits] == pytest.approx(
        [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    )
    assert all(one.ends_early for one in waits)
    pace.rest(True, 0.0)
    assert pace.rest(False, 0.0) == Rest(FIRST_WAIT, True)
