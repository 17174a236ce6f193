"""Where an event goes depends on its position in the input alone: not on epochs, attempts, schedules, or the host."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from order_jobs import Changing, Counting, Item, Keyed, Parts, Passing, is_wanted
from sample import Payment, payments, run_job
from source_ends import end_of, latest_of
from streamwork import Csv, EventLog, Job, JsonLines, ListSource, LogSource, Parquet, SqliteSink, Stream, shuffle
from streamwork.flow import origins, routing
from streamwork.testing import run
from tiers import quick_every

NONE = SqliteSink("never-opened.db", "t")
Shape = Callable[[Stream], Stream]


def twice(item: Item) -> list[Item]:
    return [item, Item(item.a, item.b, item.partition, item.offset, ">second")]


SHAPES: dict[str, Shape] = {
    "source": lambda stream: stream,
    "steps": lambda stream: stream.filter(is_wanted, id="f").apply(Changing("c"), id="c"),
    "children": lambda stream: stream.flat_map(twice, to=Item, id="t"),
    "keyed": lambda stream: stream.apply(Keyed("k", ("a",)), key="a", id="k", parallelism=2),
    "union": lambda stream: stream.apply(Passing("p"), id="p").union(stream.filter(is_wanted, id="f")),
    "twice": lambda stream: stream.flat_map(twice, to=Item, id="t").apply(
        Counting("first"), id="first", grouping=shuffle(), parallelism=2
    ),
}


def shuffled(shape: str, max_events: int, count: int = 30, **settings: Any) -> Job:
    job = Job("shuffled", checkpoint_every=0, **settings)
    stream = SHAPES[shape](job.source(Parts("in", 2, count, max_events, gaps=2), id="in", parallelism=2))
    turned = stream.apply(Counting("turned"), id="turned", grouping=shuffle(), parallelism=3)
    turned.sink(NONE, id="out")
    return job


def places(rows: list[Item]) -> Counter[tuple[str, int, str]]:
    """Every item, and all instances that it went through."""
    return Counter((row.partition, row.offset, row.trace) for row in rows)


@pytest.mark.parametrize("shape", quick_every(3, SHAPES))
def test_wherever_epochs_are_cut_events_go_the_same_way(shape: str) -> None:
    wanted = places(run(shuffled(shape, 1_000)).outputs["out"])
    shares = Counter(trace[-1] for _, _, trace in wanted.elements())
    assert len(shares) == 3 and max(shares.values()) < 2 * min(shares.values()), "it spreads"
    for seed, max_events in enumerate((2, 5, 14, 60)):
        result = run(shuffled(shape, max_events), seed=seed, crash_at=[] if seed % 2 else [40, 90])
        assert places(result.outputs["out"]) == wanted, f"{max_events} events an epoch"
    acknowledged = shuffled(shape, 9, semantics="at-least-once", tracking="acknowledge")
    assert places(run(acknowledged, seed=9).outputs["out"]) == wanted


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("shape", ["keyed", "twice"])
def test_on_spark_they_go_as_they_do_in_one_process(tmp_path: Path, spark: Any, shape: str) -> None:
    job = shuffled(shape, 14)
    graph = job.graph()
    assert graph.sinks
    wanted = places(run(job).outputs["out"])
    real = Job("shuffled", checkpoint_every=0)
    stream = SHAPES[shape](real.source(Parts("in", 2, 30, 14, gaps=2), id="in", parallelism=2))
    turned = stream.apply(Counting("turned"), id="turned", grouping=shuffle(), parallelism=3)
    turned.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    run_job(real, tmp_path / "root", "microbatch")
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert places([Item(*row) for row in db.execute("SELECT * FROM out")]) == wanted


def in_turn(route: Any, events: Any) -> Any:
    """As it was once: a counter, which begins anew with each object."""
    route.turn = getattr(route, "turn", 0)
    found = routing._shared(events, (np.arange(len(events)) + route.turn) % route._count, route._count)
    route.turn += len(events)
    return found


def test_a_counter_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing._InTurn, "__call__", in_turn)
    with pytest.raises(AssertionError, match="events an epoch"):
        test_wherever_epochs_are_cut_events_go_the_same_way("source")


def test_no_regularity_of_the_input_favours_an_instance() -> None:
    for count in (2, 3, 4, 8):
        for step in (1, 2, 3, 4, 6, 8, 64, 100):
            found = origins.turns(origins.origins_of("in", "0", np.arange(0, 1000 * step, step)), count)
            shares = np.bincount(found, minlength=count)
            assert shares.max() < 1.5 * 1000 / count, (count, step, shares)
            if step == 1:
                assert shares.max() - shares.min() <= 2, "neighbours take turns"


def json_lines(folder: Path) -> JsonLines[Payment]:
    path = folder / "in.jsonl"
    lines = [json.dumps({"card": f"c{i}", "amount": i}) for i in range(40)]
    lines[5] = ""
    lines[17] = "{broken"
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode() + b"\n")
    return JsonLines(path, Payment, on_error="drop")


def good_lines(folder: Path) -> JsonLines[Payment]:
    path = folder / "in.jsonl"
    path.write_bytes(b"".join(json.dumps({"card": f"c{i}", "amount": i}).encode() + b"\n" for i in range(40)))
    return JsonLines(path, Payment)


def csv_file(folder: Path) -> Csv[Payment]:
    path = folder / "in.csv"
    rows = [f'"c{i}\n",{i}' if i % 7 == 0 else f"c{i},{i}" for i in range(40)]
    rows[5] = ""
    path.write_text("card,amount\n" + "\n".join(rows) + "\n")
    return Csv(path, Payment)


def plain_csv(folder: Path) -> Csv[Payment]:
    path = folder / "in.csv"
    rows = [f"c{i},{i}" for i in range(40)]
    rows[5], rows[9] = "", "bad,x"
    path.write_text("card,amount\n" + "\n".join(rows) + "\n")
    return Csv(path, Payment, on_error="drop")


def parquet(folder: Path) -> Parquet[Payment]:
    amounts = pa.array([None if i == 11 else i for i in range(40)], pa.int64())
    pq.write_table(pa.table({"card": [f"c{i}" for i in range(40)], "amount": amounts}), folder / "a.parquet")
    return Parquet(folder / "a.parquet", Payment, on_error="drop")


def log(folder: Path) -> LogSource[Payment]:
    """With a transaction that was broken off in the middle."""
    with EventLog.create(folder / "log", Payment) as written:
        for part in range(4):
            written.append([Payment(f"c{i}", i) for i in range(10 * part, 10 * part + 10)])
            if part == 1:
                written.register("u", "s", 1)
                transaction = written.transaction("u", "s", 1)
                with pytest.raises(RuntimeError), transaction as broken:
                    broken.append(pa.RecordBatch.from_pylist([{"card": "lost", "amount": -1}] * 3))
                    raise RuntimeError
    return LogSource(folder / "log", Payment)


def a_list(folder: Path) -> ListSource[Payment]:
    return ListSource(payments(40))


@pytest.mark.parametrize("make", [json_lines, good_lines, csv_file, plain_csv, parquet, log, a_list])
def test_offsets_do_not_depend_on_where_a_slice_begins(tmp_path: Path, make: Any) -> None:
    source = make(tmp_path)
    partition = source.partitions()[0]

    def read(start: int, end: int) -> list[tuple[int, Any]]:
        pieces = list(source.read(partition, start, end))
        found = [pair for piece in pieces for pair in zip(piece.offsets.tolist(), piece.events, strict=True)]
        assert all(start <= offset < end for offset, _ in found)
        return found

    first, end = source.earliest([partition]).get(partition, 0), latest_of(source, partition)
    whole = read(first, end)
    assert len(whole) >= 38 and len({offset for offset, _ in whole}) == len(whole)
    assert [offset for offset, _ in whole] == sorted(offset for offset, _ in whole)
    for seed in range(5):
        rng, at, found = random.Random(seed), first, []
        while at < end:
            upto = end_of(source, partition, at, rng.randint(1, 9))
            found += read(at, upto)
            at = upto
        assert found == whole
