"""The order of events: what `docs/semantics.md` promises, over random graphs and parallelisms, on every host."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from order_jobs import Builder, Item, Keyed, Parts, Passing, Promises, Seen
from sample import run_job
from streamwork import Job, SqliteSink, Stream
from streamwork.flow import routing
from streamwork.testing import run
from tiers import quick_every

NONE = SqliteSink("never-opened.db", "t")
SEEDS, QUICK = 150, 15
ON_SPARK = (3, 7, 11)


def to_memory(stream: Stream, name: str) -> None:
    stream.sink(NONE, id=name)


def check(promises: Promises, seen: Iterable[Seen], ends: Iterable[list[Item]]) -> None:
    """1. Items that took the same instances are applied, and stored, in offset order: each sending instance keeps its order.
    2. Where the contract promises it, so are all items of a key and source partition.
    """
    told = defaultdict[tuple[str, str], list[Seen]](list)
    for one in seen:
        told[one.by, one.key].append(one)
    for (by, key), mine in told.items():
        mine.sort(key=lambda one: one.number)
        assert [one.number for one in mine] == list(range(1, len(mine) + 1)), f"{by} {key}: not every number once"
        by_trace = defaultdict[Any, list[int]](list)
        by_way = defaultdict[Any, list[int]](list)
        for one in mine:
            by_trace[one.partition, one.trace].append(one.offset)
            by_way[one.partition, re.sub(r"\.\d+", "", one.trace)].append(one.offset)
        for place, offsets in by_trace.items():
            assert offsets == sorted(offsets), f"SENDER: {by} {key} {place}: {offsets}"
        for (partition, way), offsets in by_way.items():
            if promises.get((by, way), False):
                assert offsets == sorted(offsets), f"KEY: {by} {key} {partition} {way}: {offsets}"
    for items in ends:
        by_trace = defaultdict[Any, list[int]](list)
        for item in items:
            by_trace[item.partition, item.trace].append(item.offset)
        for place, offsets in by_trace.items():
            assert offsets == sorted(offsets), f"SINK: {place}: {offsets}"


def check_outputs(promises: Promises, outputs: dict[str, list[Any]]) -> None:
    seen = [row for name, rows in outputs.items() if name.startswith("seen") for row in rows]
    check(promises, seen, [rows for name, rows in outputs.items() if name.startswith("end")])


@pytest.mark.slow(seed=list(range(QUICK, SEEDS)))
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.proves("any graph, any parallelism: order per key")
def test_order_holds_in_any_graph(seed: int) -> None:
    built = Builder(seed, to_memory)
    crashes = [10 + seed % 37] if seed % 3 == 0 else []
    check_outputs(built.promises, run(built.job, seed=seed, crash_at=crashes).outputs)


def test_the_random_graphs_hold_what_they_are_meant_to_hold() -> None:
    built = [Builder(seed, to_memory) for seed in range(SEEDS)]
    promised = [held for one in built for held in one.promises.values()]
    assert promised.count(True) > 100 and promised.count(False) > 50
    graphs = [one.job.graph() for one in built]
    assert sum(any(len(node.inputs) > 1 for node in graph.nodes) for graph in graphs) > 30, "unions"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", ON_SPARK)
def test_order_holds_on_spark(seed: int, tmp_path: Path, spark: Any) -> None:
    names: list[str] = []

    def sink(stream: Stream, name: str) -> None:
        names.append(name)
        stream.sink(SqliteSink(tmp_path / "out.db", name), id=name)

    built = Builder(seed, sink)
    run_job(built.job, tmp_path / "root", "microbatch")
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        outputs = {
            name: [
                (Seen if name.startswith("seen") else Item)(*row)
                for row in db.execute(f'SELECT * FROM "{name}" ORDER BY rowid')
            ]
            for name in names
        }
    check_outputs(built.promises, outputs)


some_seeds = pytest.mark.parametrize("seeds", quick_every(2, [range(7), range(7, 20)]), ids=["the first", "the others"])


@some_seeds
def test_a_step_between_a_source_of_one_instance_and_a_keyed_operator_keeps_the_order(seeds: Sequence[int]) -> None:
    job = Job("alerts", parallelism=3)
    passed = job.source(Parts("in", 1, 200, 50), id="in", parallelism=1).apply(Passing("step"), id="step")
    passed.apply(Keyed("keyed", ("a",)), key="a", id="keyed").channel("seen").sink(NONE, id="seen-keyed")
    for seed in seeds:
        check({("keyed", ">step"): True}, run(job, seed=seed).outputs["seen-keyed"], [])


@some_seeds
def test_behind_a_re_keying_the_order_of_each_sending_instance_holds(seeds: Sequence[int]) -> None:
    job = Job("again", parallelism=2)
    first = job.source(Parts("in", 1, 200, 50), id="in").apply(Keyed("first", ("a",)), key="a", id="first")
    first.apply(Keyed("again", ("b",)), key="b", id="again").channel("seen").sink(NONE, id="seen-again")
    lost = 0
    for seed in seeds:
        seen = run(job, seed=seed).outputs["seen-again"]
        check({}, seen, [])
        try:
            check({("again", ">first"): True}, seen, [])
        except AssertionError:
            lost += 1
    assert lost, "order per key is no promise here; if it held by itself, the contract could say more"


@pytest.mark.proves("events stay in their instance unless a key routes them")
def test_events_that_are_spread_without_a_grouping_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: as it was once, a step of its own parallelism took events in turn."""

    def in_turn(route: Any, events: Any) -> Any:
        route.turn = getattr(route, "turn", 0) + 1
        if isinstance(events.given, list) and len(route._instances) == 1:
            return {route.turn % 2: events}
        return dict.fromkeys(route._instances, events)

    job = Job("spread")
    stream = job.source(Parts("in", 2, 40, 10), id="in", parallelism=2)
    first = stream.apply(Keyed("first", ("a",)), key="a", id="first", parallelism=3)
    narrow = first.apply(Passing("narrow"), id="narrow", parallelism=2)
    narrow.apply(Keyed("last", ("a",)), key="a", id="last", parallelism=2).channel("seen").sink(NONE, id="seen-last")
    promises = {("last", ">first>narrow"): True}

    def violated() -> int:
        found = 0
        for seed in range(4):
            try:
                check(promises, run(job, seed=seed).outputs["seen-last"], [])
            except AssertionError:
                found += 1
        return found

    assert violated() == 0
    monkeypatch.setattr(routing._ToEach, "__call__", in_turn)
    assert violated() > 0
