"""Table operators: the results are those of single rows, wherever the input is cut and however branches meet."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.one_by_one import NONE, Item, Marking, Numbering, OneByOne, Reading, Timing, random_items
from engine.table_jobs import Lateness, Passing
from engine.test_waves import as_singles, by_key, pieces_of, results, singly
from streamwork import Job, ListSource, NoState, TableOperator, WrongUse
from streamwork.engine.chain import Chain
from streamwork.flow.needs import Needs
from streamwork.testing import run

JUDGING = Needs(watermarks=True)


def stateless_job(seed: int, parallelism: int = 1) -> Job:
    """Table operators that keep nothing, between steps that show order and time."""
    rng = random.Random(seed)
    job = Job("tables", checkpoint_every=0)
    streams: list[Any] = [job.source(ListSource([], Item), id="in", time="at", parallelism=1)]
    for place in range(rng.randint(2, 6)):
        stream, name, mark = rng.choice(streams[-3:]), f"n{place}", chr(97 + place)
        if rng.random() < 0.4:
            stream = stream.union(rng.choice(streams))
        shape = rng.choice(["pass", "pass", "late", "late", "mark", "number", "time", "read"])
        if shape == "pass":
            made = stream.apply(Passing(mark), id=name)
            streams.append(made.channel("odd"))
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
        streams.append(streams[-1].apply(Timing("z"), key="key", id="wide", parallelism=parallelism))
    else:
        streams[-1].union(rng.choice(streams)).sink(NONE, id="whole")
    for place, stream in enumerate(streams[-3:]):
        stream.sink(NONE, id=f"end{place}")
    return job


@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([1, 3, 40]))
@settings(max_examples=40, deadline=None)
@example(0, 30, 40)
def test_rows_that_are_named_come_in_the_order_of_single_rows(seed: int, count: int, longest: int) -> None:
    graph, pieces = stateless_job(seed).graph(), pieces_of(seed, count, longest)
    wanted = results(OneByOne, graph, pieces, JUDGING)
    assert results(Chain, graph, pieces, JUDGING) == wanted
    assert results(Chain, graph, singly(pieces), JUDGING) == wanted


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 30))
@settings(max_examples=15, deadline=None)
def test_behind_exchanges_too(seed: int, count: int, cut: int) -> None:
    job, items = stateless_job(seed, parallelism=3), random_items(seed, count)
    found = run(job, {"in": items}, seed=seed, epoch_events=cut)
    wanted = as_singles(lambda: run(job, {"in": items}, seed=seed + 1, epoch_events=cut))
    assert by_key(found.outputs) == by_key(wanted.outputs)
    assert found.states == wanted.states
    assert found.counts == wanted.counts


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
            import pyarrow as pa

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


class Failing(Passing):
    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        super().apply_rows(rows, state, tables, collector)
        if any(number % 7 == 3 for number in rows.batch["number"].to_pylist()):
            raise ValueError("a seven")


@pytest.mark.parametrize("on_error", ["drop", "dead-letter"])
def test_a_failing_batch_is_divided_until_the_failing_rows_are_known(on_error: Any) -> None:
    job = Job("failing")
    source = job.source(ListSource([], Item), id="in", time="at")
    source.apply(Failing("f"), id="f", on_error=on_error).sink(NONE, id="out")
    items = random_items(5, 40)
    found = run(job, {"in": items}, seed=1, epoch_events=11)
    good = [item.number for item in items if item.number % 7 != 3]
    assert [item.number for item in found.outputs["out"]] == [number for number in good for _ in range(2)]
    counts = found.counts["f"]
    lost = counts["dropped"] + counts["dead_letters"]
    assert (counts["processed"], lost) == (40, 40 - len(good))
    assert counts["processed"] == counts["delivered"] + counts["ended_early"] + lost
