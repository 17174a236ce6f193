"""`apply_batch` of keyed operators: the same results and the same state as `apply`, wherever the input is cut."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batch_jobs import LARGE, Book, ByBatch, ByEvent, Forgetful, Sale, Sold, sales, sales_job
from sample import run_job
from streamwork import (
    Event,
    Job,
    JobFailed,
    KeyedColumns,
    KeyedOperator,
    ListSource,
    Printer,
    Record,
    SqliteSink,
    WrongUse,
)
from streamwork.components.columns import conforming
from streamwork.engine.steps import batch_steps
from streamwork.state import files
from tiers import quick_every

KEYS = ["shop", ("shop", "till")]


def found(folder: Path) -> tuple[list[Any], list[Any], dict[Any, Any]]:
    """Rows, which stand in any order between keys, and the state as its files have it."""
    with closing(sqlite3.connect(folder / "out.db")) as db:
        sold = db.execute("SELECT shop, till, number, total FROM sold").fetchall()
        alarms = db.execute("SELECT shop, amount FROM alarms").fetchall()
    state: dict[Any, Any] = {}
    for path in sorted((folder / "root" / "sales" / "state" / "books").glob("*/*.parquet"), key=lambda p: p.name):
        for row in pq.read_table(path).to_pylist():
            row.pop("__epoch")
            state[row["shop"], row.get("till")] = row
    return sorted(map(repr, sold)), sorted(alarms), state


def both(tmp_path: Path, mode: str, operators: dict[str, Any], seed: int, **how: Any) -> list[Any]:
    """What each of the operators gives for the same events, cut in its own way; half of the events come after a restart."""
    rng, events = random.Random(seed), sales(120, seed)
    fewest = 25 if mode == "microbatch" else 5  # each epoch is a Spark job there
    results = []
    for name, operator in operators.items():
        folder = tmp_path / f"{name}-{seed}"
        folder.mkdir()
        for part in (events[:60], events):
            job = sales_job(part, folder, operator, max_events=rng.randint(fewest, 70), **how)
            run_job(job, folder / "root", mode)
        results.append(found(folder))
    return results


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.slow(rows=[1, 65_536])
@pytest.mark.parametrize("rows", [1, 7, 65_536])
def test_the_same_as_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: Any, rows: int) -> None:
    monkeypatch.setattr(batch_steps.BatchStep, "rows", rows)
    for seed in range(2):
        by_event, by_batch = both(tmp_path, "local", {"event": ByEvent(), "batch": ByBatch()}, seed, key=key)
        assert by_event == by_batch


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("log", [True, False], ids=["log", "exchange"])
def test_the_same_inside_the_source_and_behind_an_exchange(tmp_path: Path, mode: str, log: bool) -> None:
    operators = {"event": ByEvent(), "batch": ByBatch()}
    by_event, by_batch = both(tmp_path, mode, operators, 5, key="shop", parallelism=2, log=log)
    assert len(by_batch[0]) == 120
    assert by_event == by_batch


@pytest.mark.parametrize("memory", quick_every(3, ["5kB", "1B", "1GB"]))
def test_the_same_when_the_state_rests_in_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str) -> None:
    monkeypatch.setattr(files, "EAGER_ROWS", 0)
    monkeypatch.setattr("batch_jobs.Job", lambda name, **kwargs: Job(name, state_memory=memory, **kwargs))
    by_event, by_batch = both(tmp_path, "local", {"event": ByEvent(), "batch": ByBatch()}, 3, key=("shop", "till"))
    assert by_event == by_batch


@pytest.mark.slow(mode="microbatch")
def test_an_operator_may_be_rewritten_between_two_lives(tmp_path: Path, mode: str) -> None:
    events, folders = sales(90, 1), [tmp_path / "mixed", tmp_path / "plain"]
    for folder, operators in zip(folders, ((ByEvent(), ByBatch(), ByEvent()), (ByEvent(),) * 3), strict=True):
        folder.mkdir()
        for count, operator in zip((30, 60, 90), operators, strict=True):
            run_job(sales_job(events[:count], folder, operator, "shop", 20), folder / "root", mode)
    assert found(folders[0]) == found(folders[1])


def test_without_putting_columns_back_it_is_not_the_same(tmp_path: Path) -> None:
    """The negative control."""
    by_event, by_batch = both(tmp_path, "local", {"event": ByEvent(), "batch": Forgetful()}, 0, key="shop")
    assert by_event[0] != by_batch[0] and by_event[2] != by_batch[2]


class Lists(Record):
    words: list[str] = []


class KeepsLists(KeyedOperator[Sale, Lists, Sold]):
    def apply_batch(self, batch: Any, state: Any, collector: Any) -> None: ...


class Wakes(ByBatch):
    def on_timer(self, *given: Any) -> None: ...


class Yields(KeyedOperator[Sale, Book, Sold]):
    def apply_batch(self, batch: Any, state: Any, collector: Any) -> Any:
        yield


@pytest.mark.parametrize(
    ("operator", "how", "code", "words"),
    [
        (KeepsLists(), {}, "SW-OPERATOR-BATCH", "Lists, of which words cannot be a numpy column"),
        (Wakes(), {}, "SW-OPERATOR-BATCH", "on_timer"),
        (ByBatch(), {"on_error": "drop"}, "SW-OPERATOR-BATCH", "does not identify the failing event"),
        (Yields(), {}, "SW-OPERATOR-YIELD", "Yields.apply_batch yields"),
    ],
)
def test_what_cannot_be_is_refused_when_the_job_is_built(operator: Any, how: Any, code: str, words: str) -> None:
    stream = Job("refused").source(ListSource(sales(1, 0)), id="sales")
    with pytest.raises(WrongUse) as caught:
        stream.apply(operator, key="shop", id="books", **how)
    assert caught.value.code == code and words in caught.value.cause


class Emits(KeyedOperator[Sale, Book, Sold]):
    """Emits whatever it is told to."""

    def __init__(self, what: Any) -> None:
        self.what = what

    def apply_batch(self, batch: Any, state: Any, collector: Any) -> None:
        self.what(state, collector)


ROW: dict[str, Any] = {"shop": ["a"], "till": [1], "number": [1], "total": [0.5]}


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        (lambda s, c: c.emit_batch(pa.record_batch({"shop": ["a"]})), "SW-TYPE-EVENT", "'number', 'till', 'total'"),
        (lambda s, c: c.emit_batch(pa.record_batch({**ROW, "number": [0.5]})), "SW-TYPE-EVENT", "'number' is double"),
        (lambda s, c: c.emit_batch(pa.record_batch({**ROW, "shop": [None]})), "SW-TYPE-EVENT", "'shop' has nulls"),
        (lambda s, c: c.emit(Sold(1, 1, 1, 1.0)), "SW-TYPE-VALUE", "Sold.shop"),  # type: ignore[arg-type]
        (lambda s, c: s.__setitem__("number", s["total"]), "SW-OPERATOR-FAILED", "int64, and cannot take float64"),
        (lambda s, c: s.__setitem__("number", [1, 2, 3]), "SW-OPERATOR-FAILED", "one value per distinct key, 1"),
        (lambda s, c: s["nothing"], "SW-OPERATOR-FAILED", "no field 'nothing'"),
        (lambda s, c: s.__setitem__("last_till", 7), "SW-TYPE-VALUE", "Book.last_till: expected str, got int 7"),
        (lambda s, c: 1 / 0, "SW-OPERATOR-FAILED", "a batch of 2 events, the first of which is Sale(shop='a'"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, what: Any, code: str, words: str) -> None:
    job = Job("wrong", checkpoint_every=0)
    events = [msg for sale in sales(1, 0) for msg in [Sale("a", sale.till, sale.amount, sale.at)] * 2]
    sold = job.source(ListSource(events), id="sales").apply(Emits(what), key="shop", id="books")
    sold.sink(Printer(), id="out")
    with pytest.raises(JobFailed) as caught:
        run_job(job, tmp_path)
    assert caught.value.code == code and words in caught.value.cause


class Wide(Event):
    a: int
    b: str


def test_narrow_and_encoded_columns_are_brought_over() -> None:
    given = pa.record_batch({"b": pa.array(["x", "x"]).dictionary_encode(), "a": pa.array([1, 2], pa.int32())})
    assert conforming(Wide, given, "here").events == [Wide(1, "x"), Wide(2, "x")]


def test_columns_are_the_operators_own() -> None:
    kept = {"n": np.array([5, 6, 7])}
    keys = pa.record_batch({"k": ["a", "b"]})
    columns = KeyedColumns(np.array([0, 1, 0]), lambda: keys, kept, np.array([2, 0]))
    mine = columns["n"]
    mine += 1
    assert mine.tolist() == [8, 6] and kept["n"].tolist() == [5, 6, 7]
    columns["n"] = mine
    assert kept["n"].tolist() == [6, 6, 8] and len(columns) == 2


class Counted(Event):
    shop: str
    till: int | None
    number: int


class Number(Record):
    number: int = 0


class ForgetsByEvent(KeyedOperator[Sale, Number, Counted]):
    """Starts again behind each large amount."""

    def apply(self, event: Sale, state: Number, collector: Any) -> None:
        state.number += 1
        collector.emit(Counted(event.shop, event.till, state.number))
        if event.amount >= LARGE:
            collector.clear_state()


class ForgetsByBatch(KeyedOperator[Sale, Number, Counted]):
    """The same for batches of one row."""

    def apply_batch(self, batch: Any, state: KeyedColumns, collector: Any) -> None:
        state["number"] += 1
        columns = {"shop": batch["shop"], "till": batch["till"], "number": state["number"]}
        collector.emit_batch(pa.record_batch(columns))
        state.forget(batch["amount"].to_numpy() >= LARGE)
        state.forget([False])


@pytest.mark.parametrize("memory", ["1B", "1GB"])
def test_keys_are_forgotten_as_by_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str) -> None:
    monkeypatch.setattr(files, "EAGER_ROWS", 0)
    states, events = [], sales(40, 4)
    for name, operator in (("event", ForgetsByEvent()), ("batch", ForgetsByBatch())):
        for part in (events[:20], events):
            job = Job(name, checkpoint_every=0, state_memory=memory)
            counted = job.source(ListSource(part, max_events=1), id="sales").apply(
                operator, key=("shop", "till"), id="n"
            )
            counted.sink(SqliteSink(tmp_path / f"{name}.db", "counted"), id="out")
            run_job(job, tmp_path / "root")
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as db:
            rows = sorted(db.execute("SELECT shop, till, number FROM counted").fetchall(), key=repr)
        parts = sorted((tmp_path / "root" / name / "state" / "n").glob("*/*.delta.parquet"), key=lambda path: path.name)
        kept = {(row["shop"], row["till"]): row for part in parts for row in pq.read_table(part).to_pylist()}
        states.append((rows, {key: row["number"] for key, row in kept.items() if not row["__deleted"]}))
    assert states[0] == states[1] and len(states[0][0]) == 40


def test_a_mask_has_one_bool_per_key() -> None:
    columns = KeyedColumns(np.array([0, 1, 0]), pa.RecordBatch, {}, np.array([2, 0]))
    for wrong in ([True], [1, 0], [True, False, True]):
        with pytest.raises(ValueError, match="one bool per distinct key, 2"):
            columns.forget(wrong)
    columns.forget([True, False])
    columns.forget([True, True])
    assert columns.forgotten.tolist() == [0, 1]
