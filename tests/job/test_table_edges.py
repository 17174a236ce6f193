"""Tables run in the chains of the operators that read their state; chains never wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from streamwork import (
    Event,
    EventLog,
    Job,
    ListSource,
    LogSource,
    NoState,
    Operator,
    Record,
    SqliteSink,
    TableOperator,
    WrongUse,
)
from streamwork.job import Layout

NONE = SqliteSink("never-opened.db", "t")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Reading(Event):
    zone: str
    value: int


class Newest(Record):
    newest: int = 0


class Table(TableOperator[Reading, Newest, Reading]):
    shares_state = True
    keeps_key = True


class Join(TableOperator[Reading, NoState, Reading]):
    def __init__(self, *tables: str) -> None:
        self.ports = dict.fromkeys(tables, Reading)


class Same(Operator[Reading, Reading]):
    keeps_key = True

    def apply(self, event: Reading, collector: Any) -> None:
        collector.emit(event)


class Changing(Same):
    keeps_key = False


def of(job: Job, name: str) -> Any:
    return job.source(ListSource([], Reading), id=name)


def table(stream: Any, name: str, **more: Any) -> Any:
    return stream.apply(Table(), key="zone", id=name, **more)


def chains(job: Job) -> list[tuple[str, ...]]:
    return [chain.nodes for chain in Layout.of(job.graph(), 256).chains]


def test_a_join_runs_in_the_chain_of_its_tables_behind_exchanges() -> None:
    job = Job("j", parallelism=2)
    first, second = table(of(job, "a"), "ta"), table(of(job, "b"), "tb")
    of(job, "c").apply(
        Join("one", "two"), key="zone", id="join", others={"one": (first, "zone"), "two": (second, "zone")}
    ).sink(NONE, id="out")
    layout = Layout.of(job.graph(), 256)
    assert chains(job) == [("a",), ("ta", "tb", "join", "out"), ("b",), ("c",)]
    assert {(way.stream.node, way.to) for way in layout.exchanged} == {("a", "ta"), ("b", "tb"), ("c", "join")}
    assert layout.upstream[1] == (0, 2, 3)
    assert all(not edge.exchange for edge in layout.edges if edge.from_id in ("ta", "tb"))


def test_two_joins_of_one_table_run_with_it() -> None:
    job = Job("j", parallelism=2)
    shared = table(of(job, "a"), "t")
    for name in "bc":
        of(job, name).apply(Join("one"), key="zone", id=f"join-{name}", others={"one": (shared, "zone")}).sink(
            NONE, id=f"out-{name}"
        )
    assert ("t", "join-b", "out-b", "join-c", "out-c") in chains(job)


def test_what_lies_between_a_table_and_its_join_runs_with_them() -> None:
    job = Job("j", parallelism=2)
    shared = table(of(job, "a"), "t")
    between = shared.apply(Same(), id="same")
    between.apply(Join("one"), key="zone", id="join", others={"one": (shared, "zone")}).sink(NONE, id="out")
    assert chains(job)[1] == ("t", "same", "join", "out")


def test_a_circle_of_chains_is_refused() -> None:
    job = Job("j", parallelism=2)
    shared = table(of(job, "a"), "t")
    moved = shared.apply(Changing(), id="changing")
    moved.apply(Join("one"), key="zone", id="join", others={"one": (shared, "zone")}).sink(NONE, id="out")
    with pytest.raises(WrongUse, match="SW-TABLE-CHAIN.*changing and join"):
        Layout.of(job.graph(), 256)


def test_another_parallelism_is_refused() -> None:
    job = Job("j", parallelism=2)
    shared = table(of(job, "a"), "t", parallelism=3)
    of(job, "b").apply(Join("one"), key="zone", id="join", others={"one": (shared, "zone")})
    with pytest.raises(WrongUse, match="SW-TABLE-CHAIN.*parallelism"):
        Layout.of(job.graph(), 256)


@pytest.fixture
def logs(tmp_path: Any) -> Iterator[dict[str, LogSource[Reading]]]:
    found = {}
    for name in "ab":
        with EventLog.create(tmp_path / name, Reading, key="zone", partitions=4):
            found[name] = LogSource(tmp_path / name, Reading)
    yield found


def test_inputs_that_are_partitioned_alike_become_one_chain(logs: Any) -> None:
    job = Job("j", parallelism=2)
    a, b = (job.source(logs[name], id=name) for name in "ab")
    a.apply(Join("right"), key="zone", id="join", others={"right": (b, "zone")}).sink(NONE, id="out")
    assert chains(job) == [("a", "b", "join", "out")]


def test_tables_of_inputs_that_are_partitioned_alike_too(logs: Any) -> None:
    job = Job("j", parallelism=2)
    a, b = (job.source(logs[name], id=name) for name in "ab")
    shared = table(b, "t")
    a.apply(Join("right"), key="zone", id="join", others={"right": (shared, "zone")}).sink(NONE, id="out")
    assert chains(job) == [("a", "b", "t", "join", "out")]


def test_where_one_input_is_exchanged_all_are(logs: Any) -> None:
    """A chain begins with sources or behind exchanges, never both."""
    job = Job("j", parallelism=2)
    shared = table(job.source(logs["a"], id="a"), "t")
    of(job, "b").apply(Join("right"), key="zone", id="join", others={"right": (shared, "zone")}).sink(NONE, id="out")
    assert chains(job) == [("a",), ("t", "join", "out"), ("b",)]
    assert all(edge.exchange for edge in Layout.of(job.graph(), 256).edges if edge.from_id in ("a", "b"))
