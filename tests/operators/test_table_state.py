"""What tables and joins keep at a checkpoint follows from the input before it, not from the waves in which it arrived."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streamwork import Event, Job, ListSource, Record, SqliteSink
from streamwork.operators.joins.table import TableOfStream
from streamwork.operators.joins.table_join import TimedTableJoin
from streamwork.testing import run

START = datetime(2026, 3, 1, tzinfo=UTC)


class Reading(Event):
    zone: str
    celsius: int
    at: datetime


READINGS = [Reading("ab"[number % 2], number, START + timedelta(minutes=number)) for number in range(12)]


def joined() -> Job:
    job = Job("readings", parallelism=2)
    readings = job.source(ListSource(READINGS), id="readings", time="at")
    joined = readings.join(readings.table(key="zone", id="zones"), key="zone", id="joined")
    joined.sink(SqliteSink("joined.db", "joined"), id="out")
    return job


States = dict[str, dict[Any, Record]]


def whole() -> States:
    """The state at the end, if all input arrives in one wave."""
    return run(joined()).states


def cut(size: int = 5, crash_at: int | None = None) -> States:
    """The state at the end, if a checkpoint has so many events."""
    return run(joined(), {"readings": READINGS}, crash_at=crash_at, epoch_events=size).states


@pytest.mark.parametrize(("size", "crash_at"), [(1, None), (5, None), (5, 50)])
def test_the_state_does_not_depend_on_cuts(size: int, crash_at: int | None) -> None:
    states = cut(size, crash_at)
    assert states == whole()
    # The version of minute 9 ends at the watermark: it is over, and forgotten, when the watermark is beyond that.
    assert sorted(row.celsius for row in states["zones"].values()) == [9, 10, 11], "no event can meet the others"


def test_control_a_table_that_forgets_only_as_time_advances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(TableOfStream, "on_checkpoint")
    assert cut()["zones"] != whole()["zones"]


def test_control_a_restart_changes_the_numbers_of_rows_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimedTableJoin, "is_numbered", False)
    assert cut(crash_at=50)["joined"] != whole()["joined"]
