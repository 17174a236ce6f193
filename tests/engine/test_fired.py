"""The records of results that were due by time."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamwork.components import TimerClock
from streamwork.components.field_types import LAST_TIME
from streamwork.components.times import from_microseconds, microseconds
from streamwork.engine.fired import Fired
from streamwork.world import RealDisk

EVENT = TimerClock.EVENT


def fired(folder: Path, instance: int = 0, parallelism: int = 2, component: str = "sums") -> Fired:
    return Fired(RealDisk(), folder, component, instance, parallelism)


def test_records_of_epochs_in_between_count(tmp_path: Path) -> None:
    for epoch, until in ((4, 40), (5, 50), (6, 60), (7, 70)):
        one = fired(tmp_path)
        one.begin(epoch, f"a{epoch}")
        one.record(EVENT, until)
        one.record(EVENT, until - 5)
    assert fired(tmp_path).lost(4, 7) == {EVENT: 60}
    assert fired(tmp_path).lost(7, 8) == {}


def test_each_attempt_counts(tmp_path: Path) -> None:
    """A second attempt that comes less far does not hide the first one."""
    for attempt, until in (("first", 90), ("second", 30)):
        one = fired(tmp_path)
        one.begin(5, attempt)
        one.record(EVENT, until)
    assert fired(tmp_path).lost(4, 6) == {EVENT: 90}


@pytest.mark.parametrize(("instance", "parallelism", "found"), [(1, 2, {}), (1, 3, {EVENT: 50})])
def test_another_instance_counts_if_keys_may_have_moved(
    tmp_path: Path, instance: int, parallelism: int, found: dict[TimerClock, int]
) -> None:
    one = fired(tmp_path)
    one.begin(5, "a")
    one.record(EVENT, 50)
    assert fired(tmp_path, instance, parallelism).lost(4, 6) == found


def test_claims_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    """Those of sinks, and those of sources in live mode, also if a component is named like a number."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "000000000005-sums-0").write_text("attempt")
    (tmp_path / "claims" / "live-3-0.json").write_text("{}")
    assert fired(tmp_path).lost(4, 6) == {}
    assert fired(tmp_path, component="3").lost(0, 9) == {}


def test_a_record_is_not_ahead_of_the_last_time(tmp_path: Path) -> None:
    one = fired(tmp_path)
    one.ahead = 10_000_000
    one.begin(5, "a")
    one.record(EVENT, microseconds(LAST_TIME) - 1)
    assert from_microseconds(fired(tmp_path).lost(4, 6)[EVENT]) == LAST_TIME
