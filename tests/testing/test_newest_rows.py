"""`newest_rows`: a check of `explore` for sinks that get updates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streamwork import Event, Fixed, Job, ListSource, SqliteSink, count
from streamwork.testing import explore, newest_rows, run

START = datetime(2026, 3, 1, 8, tzinfo=UTC)


class Payment(Event):
    card: str
    at: datetime


class Usage(Event):
    card: str
    window_start: datetime
    payments: int


PAYMENTS = [Payment("c1", START + timedelta(minutes=minute)) for minute in (1, 2, 3, 4, 12, 5, 6, 7, 25)]


def updated() -> Job:
    """A window that emits before each checkpoint."""
    job = Job("updated")
    payments = job.source(ListSource([], Payment), id="payments", time="at")
    usage = payments.window(Fixed("10min"), key="card", emit="epoch", lateness="1h", id="usage").aggregate(
        Usage, payments=count()
    )
    usage.sink(SqliteSink("usage.db", "usage", key=["card", "window_start"]), id="out")
    return job


def test_updates_are_compared_by_the_newest_row_of_each_key() -> None:
    check = newest_rows({"out": ["card", "window_start"]})
    assert explore(updated(), {"payments": PAYMENTS}, seeds=5, check=check).resumes


def test_control_by_default_every_update_counts() -> None:
    with pytest.raises(AssertionError, match="sink out"):
        explore(updated(), {"payments": PAYMENTS}, seeds=5)


def test_control_a_newest_row_that_differs_is_found() -> None:
    check = newest_rows({"out": ["card", "window_start"]})
    without_one = [*PAYMENTS[:-2], PAYMENTS[-1]]
    whole, less = (run(updated(), {"payments": some}) for some in (PAYMENTS, without_one))
    check(whole, whole)
    with pytest.raises(AssertionError, match="sink out"):
        check(whole, less)
