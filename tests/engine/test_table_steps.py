"""Table operators: the results are those of single rows, wherever the input is cut and however branches meet."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.one_by_one import NONE, START, Item, Marking, Numbering, OneByOne, Reading, Timing, random_items
from engine.table_jobs import AsOf, Lateness, Newest, Passing, Pulse, Waiting
from engine.test_waves import as_singles, pieces_of, results, singly
from sample import run_job
from streamwork import Job, ListSource, NoState, Operator, SqliteSink, TableOperator, WrongUse, field
from streamwork.engine.chain import Chain
from streamwork.flow.needs import Needs
from streamwork.testing import run
from streamwork.testing.markers import Pause

JUDGING = Needs(watermarks=True)


STATELESS = ("pass", "pass", "late", "late", "mark", "where", "number", "time", "read")
STATEFUL = (*STATELESS, "wait", "wait", "wait", "double")


def table_job(seed: int, shapes: tuple[str, ...] = STATELESS, parallelism: int = 1) -> Job:
    """Table operators between steps that show order and time."""
    rng = random.Random(seed)
    job = Job("tables", checkpoint_every=0)
    streams: list[Any] = [job.source(ListSource([], Item), id="in", time="at", parallelism=1)]
    for place in range(rng.randint(2, 6)):
        stream, name, mark = rng.choice(streams[-3:]), f"n{place}", chr(97 + place)
        if rng.random() < 0.4:
            stream = stream.union(rng.choice(streams))
        shape = rng.choice(shapes)
        if shape == "pass":
            made = stream.apply(Passing(mark), id=name)
            streams.append(made.channel("odd"))
        elif shape == "wait":
            made = stream.apply(Waiting(mark), key="key", id=name)
        elif shape == "double":
            made = stream.apply(Naming(), id=name)
        elif shape == "where":
            made = stream.where(field("number") > 3, id=name)
        elif shape == "late":
            made = stream.apply(Lateness(mark), id=name)
        elif shape == "number":
            made = stream.apply(Numbering(mark), id=name)
        elif shape == "time":
            made = stream.apply(Timing(mark), key="key", id=name)
        elif shape == "read":
            made = stream.apply(Reading(mark), id=name)
        else:
            made = stream.apply(Marking(mark), id=name)
        streams.append(made)
    if parallelism > 1:
        last = rng.choice([Timing, Waiting]) if "wait" in shapes else Timing
        streams.append(streams[-1].apply(last("z"), key="key", id="wide", parallelism=parallelism))
    else:
        streams[-1].union(rng.choice(streams)).sink(NONE, id="whole")
    for place, stream in enumerate(streams[-3:]):
        stream.sink(NONE, id=f"end{place}")
    return job


def unsorted(outputs: dict[str, list[Any]]) -> dict[str, list[str]]:
    return {name: sorted(map(repr, rows)) for name, rows in outputs.items()}


class Naming(Operator[Item, Item]):
    """As `Doubling`, but its batches name the rows."""

    names_rows = True

    def apply_batch(self, batch: pa.RecordBatch, collector: Any) -> None:
        twice = np.repeat(np.arange(batch.num_rows), 2)
        collector.emit_batch(batch.take(pa.array(twice)), rows=twice)


@pytest.mark.parametrize("shapes", [STATELESS, STATEFUL], ids=["stateless", "stateful"])
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40), longest=st.sampled_from([1, 3, 40]))
@settings(max_examples=30, deadline=None)
@example(seed=0, count=30, longest=40)
def test_batches_give_what_single_rows_give(shapes: Any, seed: int, count: int, longest: int) -> None:
    graph, pieces = table_job(seed, shapes).graph(), pieces_of(seed, count, longest)
    wanted = unordered(results(OneByOne, graph, pieces, JUDGING))
    assert unordered(results(Chain, graph, pieces, JUDGING)) == wanted
    assert unordered(results(Chain, graph, singly(pieces), JUDGING)) == wanted


def unordered(found: dict[str, Any]) -> dict[str, Any]:
    """The rows of sinks without their order: operators that keep state show it in what they emit."""
    rows = {name: sorted(map(repr, one)) for name, one in found.items() if name.endswith(" rows")}
    return {**found, **rows}


@pytest.mark.parametrize("shapes", [STATELESS, STATEFUL], ids=["stateless", "stateful"])
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40), cut=st.integers(1, 30))
@settings(max_examples=12, deadline=None)
def test_behind_exchanges_too(shapes: Any, seed: int, count: int, cut: int) -> None:
    job, events = table_job(seed, shapes, parallelism=3), random_items(seed, count)
    found = run(job, {"in": events}, seed=seed, epoch_events=cut)
    wanted = as_singles(lambda: run(job, {"in": events}, seed=seed + 1, epoch_events=cut))
    assert unsorted(found.outputs) == unsorted(wanted.outputs)
    assert found.states == wanted.states
    assert found.counts == wanted.counts


@pytest.mark.parametrize("parallelism", [1, 2])
@given(seed=st.integers(0, 10**6), crash=st.integers(1, 120), cut=st.integers(1, 20))
@settings(max_examples=12, deadline=None)
def test_a_table_shares_its_state_with_a_join_in_any_cut_and_after_crashes(
    parallelism: int, seed: int, crash: int, cut: int
) -> None:
    job = Job("as-of", parallelism=parallelism, checkpoint_every=0)
    rows = job.source(ListSource([], Item), id="rows", time="at")
    versions = job.source(ListSource([], Item), id="versions", time="at")
    table = versions.apply(Newest(), key="key", id="newest")
    rows.apply(AsOf(), key="key", id="join", others={"table": (table, "key")}).sink(NONE, id="out")
    rng = random.Random(seed)
    times = [START + timedelta(seconds=second) for second in range(30)]
    mine = [Item(rng.choice("ab"), place, at) for place, at in enumerate(times)]
    theirs = [Item(rng.choice("ab"), 100 + place, at) for place, at in enumerate(rng.sample(times, 10))]
    theirs.sort(key=lambda item: item.at)
    end = Item("z", 999, START + timedelta(days=1))
    found = run(job, {"rows": [*mine, end], "versions": [*theirs, end]}, seed, crash, cut)
    wanted = []
    for item in mine:
        before = [one for one in theirs if one.key == item.key and one.at <= item.at]
        wanted.append((item.number, str(before[-1].number) if before else "-"))
    assert sorted((item.number, item.trace) for item in found.outputs["out"]) == sorted(wanted)
    counts = found.counts["join"]
    assert counts["processed"] == 31 == counts["delivered"] + counts["ended_early"]


class Unordered(Passing):
    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        collector.emit_batch(rows.batch)


def test_unnamed_rows_precede_the_wave_and_would_be_noticed() -> None:
    """The negative control of the order: without names, rows do not come in the order of single rows."""
    job = Job("control")
    source = job.source(ListSource([], Item), id="in", time="at")
    source.apply(Unordered("a"), id="a").union(source).apply(Numbering("n"), id="n").sink(NONE, id="out")
    graph, pieces = job.graph(), pieces_of(1, 20, 20)
    assert results(Chain, graph, pieces) != results(OneByOne, graph, pieces)


class SelfJoin(TableOperator[Item, NoState, Item]):
    """Marks the rows of each of its ports, counted as they come."""

    ports = {"right": Item}

    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        for place, event in enumerate(rows.batch.to_pylist()):
            event["trace"] += f"{rows.port}"
            collector.emit_batch(pa.RecordBatch.from_pylist([event], rows.batch.schema), rows=[place])


@pytest.mark.parametrize("parallelism", [1, 2])
def test_one_stream_is_read_at_two_ports(parallelism: int) -> None:
    job = Job("self", parallelism=parallelism)
    source = job.source(ListSource([], Item), id="in", time="at")
    source.apply(SelfJoin(), key="key", id="join", others={"right": (source, "key")}).sink(NONE, id="out")
    items = random_items(5, 30)
    found = run(job, {"in": items}, seed=1, epoch_events=7).outputs["out"]
    assert sorted((item.number, item.trace) for item in found) == sorted(
        (item.number, port) for item in items for port in ("main", "right")
    )


def test_ports_are_checked() -> None:
    job = Job("ports")
    source = job.source(ListSource([], Item), id="in")
    with pytest.raises(WrongUse, match="SW-JOB-PORT.*'right'"):
        source.apply(SelfJoin(), key="key", id="a")
    with pytest.raises(WrongUse, match="SW-JOB-PORT"):
        source.apply(Passing("x"), id="b", others={"right": (source, "key")})
    with pytest.raises(WrongUse, match="SW-KEY-TYPE"):
        source.apply(SelfJoin(), key="key", id="c", others={"right": (source, "number")})


class Manual(Passing):
    manual_ack = True


class Impure(Passing):
    pure = False


def test_what_columns_cannot_provide_is_refused() -> None:
    job = Job("refused")
    source = job.source(ListSource([], Item), id="in")
    with pytest.raises(WrongUse, match="SW-OPERATOR-BATCH.*manual_ack"):
        source.apply(Manual("m"), id="a")
    with pytest.raises(WrongUse, match="(?s)SW-OPERATOR-BATCH.*pure = True"):
        source.apply(Impure("m"), id="b", on_error="drop")


@pytest.mark.slow(mode="microbatch")
def test_processing_time_advances_a_table_operator_when_it_is_due(tmp_path: Path, mode: str) -> None:
    """The second run plans an epoch for it alone: there is no input."""
    found = []
    for _ in range(2):
        job = Job("pulse", checkpoint_every=0)
        source = job.source(ListSource(random_items(1, 5), Item), id="in")
        pulse = source.apply(Pulse("p", seconds=0), key="key", id="pulse")
        pulse.sink(SqliteSink(tmp_path / "out.db", "t"), id="out")
        run_job(job, tmp_path / "root", mode)
        with closing(sqlite3.connect(tmp_path / "out.db")) as db:
            found.append(sorted(number for (number,) in db.execute("SELECT number FROM t")))
    assert found[1] == [0, 1, 2, 3, 4]
    assert mode == "live" or found[0] == [], "in live mode there may be another tick at the end"


def test_in_virtual_time_it_is_advanced_by_ticks() -> None:
    job = Job("pulse", checkpoint_every=0)
    source = job.source(ListSource([], Item), id="in")
    source.apply(Pulse("p", seconds=10), key="key", id="pulse").sink(NONE, id="out")
    events = random_items(1, 6)
    found = run(job, {"in": [*events[:3], Pause(60), *events[3:]]}, epoch_events=1)
    emitted = {item.number for item in found.outputs["out"]}
    assert {0, 1, 2} <= emitted and 5 not in emitted, "those before the pause; the last one is not due"
