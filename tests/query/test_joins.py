"""Joins answer like any state, with readable names for the parts of their keys, over HTTP and from files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from query.serving_world import Served, serving
from sample import run_job
from streamwork import Event, Job, ListSource, SqliteSink, query

START = datetime(2026, 3, 1, 8, tzinfo=UTC)


class Click(Event):
    user: str
    page: str
    at: datetime


class Price(Event):
    user: str
    price: int
    at: datetime


CLICKS = [Click(f"user-{n % 3}", f"page-{n}", START + timedelta(minutes=n)) for n in range(12)]
PRICES = [Price(f"user-{n % 3}", 100 + n, START + timedelta(minutes=2 * n)) for n in range(6)]


def joining(folder: Path) -> Job:
    job = Job("joining", checkpoint_every=0)
    clicks = job.source(ListSource(CLICKS, Click), id="clicks", time="at")
    prices = job.source(ListSource(PRICES, Price), id="prices", time="at")
    near = clicks.join(prices, key="user", within="1h", lateness="1d", id="near")
    near.sink(SqliteSink(folder / "near.db", "near"), id="near-out")
    table = prices.table(key="user", history="1d", lateness="1d", id="quotes")
    priced = clicks.join(table, key="user", as_of="at", how="left", id="priced")
    priced.sink(SqliteSink(folder / "priced.db", "priced"), id="priced-out")
    return job


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("joins")
    epoch = run_job(joining(path), path / "root").checkpoint or 0
    with serving(path / "root") as found:
        found.follow(epoch, "joining")
        yield found


def test_the_versions_of_a_table(served: Served) -> None:
    expected = {one.at: one.price for one in PRICES if one.user == "user-1"}
    at = next(iter(expected))
    for state in readers(served):
        found = state["quotes"].prefix("user-1")
        assert {key.user for key in found.found_keys} == {"user-1"}
        assert {key.valid_from: record.price for key, record in found} == expected
        record = state["quotes"].get({"user": "user-1", "valid_from": at}).record
        assert record is not None and record.price == expected[at]
    status, answer = served.ask("/range/quotes?prefix=user-1")
    assert status == 200
    assert {row["key"]["valid_from"]: row["record"]["price"] for row in answer["rows"]} == {
        text(at): price for at, price in expected.items()
    }
    status, answer = served.ask(f"/state/quotes/user-1/{text(at)}")
    assert status == 200 and answer["record"]["price"] == expected[at]


def test_the_events_that_a_join_keeps(served: Served) -> None:
    clicks = {one.at: one.page for one in CLICKS if one.user == "user-2"}
    prices = {one.at: one.price for one in PRICES if one.user == "user-2"}
    for state in readers(served):
        left, right = (state["near"].prefix(("user-2", is_right)) for is_right in (False, True))
        assert {key.join_time: record.left_page for key, record in left} == clicks
        assert {key.join_time: record.right_price for key, record in right} == prices
    for is_right, expected in (("false", clicks), ("true", prices)):
        status, answer = served.ask(f"/range/near?prefix=user-2&prefix={is_right}")
        assert status == 200
        field = "right_price" if is_right == "true" else "left_page"
        found = {row["key"]["join_time"]: row["record"][field] for row in answer["rows"]}
        assert found == {text(at): value for at, value in expected.items()}
    _, answer = served.ask("/state")
    assert {name: list(one["key"]) for name, one in answer["components"].items()} == {
        "near": ["user", "join_right", "join_time", "join_number"],
        "quotes": ["user", "valid_from"],
        "priced": ["user", "join_time", "join_number"],
    }


def readers(served: Served) -> Iterator[query.State]:
    """The client, and a reader of the files."""
    with served.connect(types={}) as remote:
        yield remote
    with query.open(served.jobs.root / "joining", cache=served.jobs.root.parent / "files") as files:
        yield files


def text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
