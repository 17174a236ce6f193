"""Windows answer like any state, with readable names for the parts of their keys, from files and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from query.serving_world import Served, serving
from sample import run_job
from streamwork import Event, Fixed, Job, ListSource, SqliteSink, count, query, sum_of

START = datetime(2026, 3, 1, 8, tzinfo=UTC)


class Payment(Event):
    card: str
    euros: int
    at: datetime


class Spent(Event):
    window_start: datetime
    window_end: datetime
    card: str
    payments: int
    euros: int


PAYMENTS = [Payment(f"card-{n % 3}", n, START + timedelta(minutes=n)) for n in range(60)]


def windowed(folder: Path) -> Job:
    job = Job("spending", checkpoint_every=0)
    payments = job.source(ListSource(PAYMENTS, Payment), id="payments", time="at")
    spent = payments.window(Fixed("10min"), key="card", time="at", lateness="1d", id="spent").aggregate(
        Spent, payments=count(), euros=sum_of("euros")
    )
    spent.sink(SqliteSink(folder / "out.db", "spent"), id="out")
    return job


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("windows")
    epoch = run_job(windowed(path), path / "root").checkpoint or 0
    with serving(path / "root") as found:
        found.follow(epoch, "spending")
        yield found


def test_windows_of_a_key(served: Served) -> None:
    since, until = START + timedelta(minutes=10), START + timedelta(minutes=30)
    expected = {
        (begin, sum(1 for p in PAYMENTS if p.card == "card-1" and begin <= p.at < begin + timedelta(minutes=10)))
        for begin in (since, since + timedelta(minutes=10))
    }
    with served.connect(types={}) as remote, query.open(served.jobs.root / "spending", cache=served.jobs.root) as files:
        for state in (remote, files):
            found = state["spent"].windows("card-1", since, until)
            assert {key.card for key in found.found_keys} == {"card-1"}
            assert {(key.window_start, record.payments) for key, record in found} == expected, found.to_arrow().schema
            assert len(state["spent"].windows("card-1")) == 6
    status, answer = served.ask("/windows/spent/card-1?since=2026-03-01T08:10:00Z&until=2026-03-01T08:30:00Z")
    assert status == 200 and [row["key"]["window_start"] for row in answer["rows"]] == [
        "2026-03-01T08:10:00Z",
        "2026-03-01T08:20:00Z",
    ]
    assert set(served.ask("/state")[1]["components"]["spent"]["key"]) >= {"card", "window_start"}
