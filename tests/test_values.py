"""The extremes of every type, by every way into, through and out of a job. What fits arrives as it was; what does not is set
aside or stops the job by name; no exception without a code leaves the engine.
"""

import base64
import json
import sqlite3
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample import run_job
from streamwork import (
    Csv,
    Event,
    Job,
    JsonLines,
    KeyedOperator,
    ListSource,
    LogSink,
    Operator,
    Parquet,
    ParquetSink,
    Record,
    SqliteSink,
    StreamworkError,
    WrongUse,
    field,
)
from streamwork.components import field_types
from streamwork.components import validation as fitting_module
from streamwork.components.columns import distinct, to_structs
from streamwork.components.keyed_columns import KeyedColumns
from streamwork.components.keys import Key
from streamwork.connectors.text import with_text
from streamwork.delivery import DeadLetters
from streamwork.engine import chain as chain_module
from streamwork.flow import times
from streamwork.log import EventLog
from streamwork.testing import run
from streamwork.world import RealDisk
from value_jobs import BERLIN, EAST, KINDS, TOUCHED, TYPES, WEST, Moment, Waking, plain

NONE = SqliteSink("never-opened.db", "t")
KEYABLE = [name for name, kind in KINDS.items() if kind.keyable]
LATE = datetime(9999, 12, 31, 23, 59, 59, tzinfo=WEST)


class Number(Event):
    key: str
    n: int


def mixed(name: str) -> list[Any]:
    """Every extreme, the bad ones between the good ones, and each good one twice."""
    kind = KINDS[name]
    pairs = [value for good, bad in zip(kind.good, kind.bad, strict=False) for value in (good, bad)]
    return [*pairs, *kind.good[len(kind.bad) :], *kind.bad[len(kind.good) :], *kind.good]


def fits(name: str, value: Any) -> bool:
    """By identity: NaN is not equal to itself, and True is equal to 1."""
    return any(value is good for good in KINDS[name].good)


def expected(name: str, values: list[Any]) -> list[tuple[int, Any]]:
    return [(n, plain(value)) for n, value in enumerate(values) if fits(name, value)]


def got(rows: list[Any]) -> list[tuple[int, Any]]:
    return sorted(((row.n, plain(row.value)) for row in rows), key=lambda pair: pair[0])


def logged(path: Path, event: type[Any]) -> list[Any]:
    log = EventLog(path, event)
    batches = [batch for number in log.partitions() for batch in log.read(number, 0, log.end(number))]
    return [found for batch in batches for found in to_structs(event, batch)]


def letters(root: Path, job: str) -> int:
    return len(list(DeadLetters(RealDisk(), root / job).all()))


# ---- an operator's output, as field, key and part of a key ---------------------------------------------------------------


@pytest.mark.slow(parallelism=[1, 3])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.proves("the extremes of every type, emitted, as key and as state")
def test_what_an_operator_emits(name: str, parallelism: int) -> None:
    made, values = TYPES[name], mixed(name)
    job = Job("emitting", parallelism=parallelism)
    stream = job.source(ListSource([], made.event), id="in").apply(
        made.spoiling(values), id="spoil", on_error="dead-letter", parallelism=1
    )
    stream.apply(made.keeping(), key="n", id="by-number").sink(NONE, id="numbers")
    if KINDS[name].keyable:
        stream.apply(made.keeping(), key="value", id="by-value").sink(NONE, id="values")
        stream.apply(made.keeping(), key=("value", "n"), id="by-both").sink(NONE, id="both")
    result = run(job, {"in": made.clean(values, name)}, epoch_events=4, crash_at=40)
    wanted = expected(name, values)
    for sink, rows in result.outputs.items():
        assert got(rows) == wanted, sink
    assert len(result.letters) == len(values) - len(wanted)
    assert all(letter.error.startswith("SW-TYPE-VALUE") for letter in result.letters)
    if KINDS[name].keyable:
        by_key = Counter(value for _, value in wanted)
        assert {plain(key): kept.count for key, kept in result.states["by-value"].items()} == by_key
        assert len(result.states["by-both"]) == len(wanted)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("name", KINDS)
def test_one_bad_value_stops_the_job_by_name(name: str, parallelism: int) -> None:
    made = TYPES[name]
    for bad in KINDS[name].bad:
        job = Job("stopping", parallelism=parallelism)
        stream = job.source(ListSource([], made.event), id="in").apply(made.spoiling([bad]), id="spoil", parallelism=1)
        key = "value" if KINDS[name].keyable else "n"
        stream.apply(made.keeping(), key=key, id="keep", on_error="dead-letter").sink(NONE, id="out")
        with pytest.raises(StreamworkError, match="SW-TYPE-VALUE: spoil: ") as caught:
            run(job, {"in": made.clean([bad], name)})
        assert caught.value.component == "spoil", "whoever emitted it answers for it, not the key behind it"


@pytest.mark.parametrize("name", KINDS)
def test_state(name: str) -> None:
    made, values = TYPES[name], mixed(name)
    job = Job("keeping", parallelism=2)
    job.source(ListSource([], made.event), id="in").apply(
        made.keeping(values), key="n", id="keep", on_error="dead-letter"
    ).sink(NONE, id="out")
    result = run(job, {"in": made.clean(values, name)}, epoch_events=4, crash_at=30)
    found = {key: plain(record.last) for key, record in result.states["keep"].items()}  # type: ignore[attr-defined]
    assert found == dict(expected(name, values)), "as it was after a restart, and nothing of what does not fit"


# ---- sources -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_polled_source(name: str, tmp_path: Path) -> None:
    made, values = TYPES[name], mixed(name)
    job = Job("polling", semantics="at-most-once", parallelism=1)
    source = made.polled(values)
    source.on_error = "dead-letter"
    job.source(source, id="in").sink(LogSink(tmp_path / "log"), id="out")
    run_job(job, tmp_path / "root")
    assert got(logged(tmp_path / "log", made.event)) == expected(name, values)
    assert letters(tmp_path / "root", "polling") == len(values) - len(expected(name, values))


def as_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return value if isinstance(value, str | int | float | None) else str(value)


JSON_BAD = {
    "int": ["9223372036854775808", "-9223372036854775809", "1" * 400, "1.5", "true", "null", '"1"'],
    "datetime": ['"9999-12-31T23:59:59-05:00"', '"0001-01-01T00:00:00+14:00"', '"2026-01-01T00:00:00"', "null"],
    "Decimal": ['"NaN"', '"sNaN"', '"Infinity"', '"1E+10"', '"0.001"', "1e400", "null"],
    "str": ['"\\ud800"', '"a\\udfff"', "7", "null"],
    "float": ["1e999", "NaN", '"1"', "null"],
    "date": ['"10000-01-01"', '"0000-01-01"', "null"],
    "bytes": ['"%"', "null"],
    "bool": ["1", "null"],
}
NO_JSON = {"float": ("inf", "-inf", "nan")}


@pytest.mark.parametrize("name", KINDS)
def test_json_lines(name: str, tmp_path: Path) -> None:
    made = TYPES[name]
    good = [v for v in KINDS[name].good if str(v) not in NO_JSON.get(name, ())]
    lines = [json.dumps({"n": n, "value": as_json(value)}) for n, value in enumerate(good)]
    lines += [f'{{"n": {n + 100}, "value": {text}}}' for n, text in enumerate(JSON_BAD[name])]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    job = Job("reading")
    source: Any = JsonLines(tmp_path / "in.jsonl", made.event, on_error="dead-letter", max_events=5)
    job.source(source, id="in").sink(LogSink(tmp_path / "log"), id="out")
    run_job(job, tmp_path / "root")
    assert got(logged(tmp_path / "log", made.event)) == [(n, plain(value)) for n, value in enumerate(good)]
    assert letters(tmp_path / "root", "reading") == len(JSON_BAD[name])


CSV_BAD = {
    "int": ["9223372036854775808", "1" * 5000, "1.5", "\u0663", ""],
    "datetime": ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+14:00", "2026-01-01T00:00:00", ""],
    "Decimal": ["NaN", "sNaN", "Infinity", "1E+10", "0.001", "1E+999999999", ""],
    "float": ["1e999", "0x1", ""],
    "date": ["10000-01-01", "0000-01-01", ""],
    "bytes": ["%"],
    "bool": ["1", ""],
    "str": [],
}


@pytest.mark.parametrize("name", KINDS)
def test_csv(name: str, tmp_path: Path) -> None:
    made = TYPES[name]

    def cell(value: Any) -> str:
        text = str(value).lower() if isinstance(value, bool) else str(as_json(value))
        return '"' + text.replace('"', '""') + '"'

    rows = [f"{n},{cell(value)}" for n, value in enumerate(KINDS[name].good)]
    rows += [f'{n + 100},"{text}"' for n, text in enumerate(CSV_BAD[name])]
    (tmp_path / "in.csv").write_bytes(("n,value\n" + "\n".join(rows) + "\n").encode())
    job = Job("reading")
    job.source(Csv(tmp_path / "in.csv", made.event, on_error="dead-letter"), id="in").sink(
        LogSink(tmp_path / "log"), id="out"
    )
    run_job(job, tmp_path / "root")
    assert got(logged(tmp_path / "log", made.event)) == [(n, plain(value)) for n, value in enumerate(KINDS[name].good)]
    assert letters(tmp_path / "root", "reading") == len(CSV_BAD[name])


PARQUET_BAD = {
    "int": pa.array([2**63, 2**64 - 1], pa.uint64()),
    "datetime": pa.array([253402300800000000, -62135596800000001, 2**62, None], pa.timestamp("us", "UTC")),
    "date": pa.array([2932897, -719163, 2**31 - 1, None], pa.date32()),
    "str": pa.array([b"\xff", b"\xed\xa0\x80", None], pa.binary()),
    "float": pa.array([None], pa.float32()),
    "Decimal": pa.array([None], pa.decimal128(12, 2)),
}


@pytest.mark.parametrize("name", PARQUET_BAD)
def test_parquet(name: str, tmp_path: Path) -> None:
    made, bad = TYPES[name], PARQUET_BAD[name]
    good = list(KINDS[name].good)
    folder = tmp_path / "in"
    folder.mkdir()
    numbers = pa.array(range(len(good)), pa.int64())
    pq.write_table(pa.table({"n": numbers, "value": _column(name, good)}), folder / "a.parquet")
    value = bad if not pa.types.is_binary(bad.type) else pa.Array.from_buffers(pa.string(), len(bad), bad.buffers())
    pq.write_table(
        pa.table({"n": pa.array(range(100, 100 + len(bad)), pa.int64()), "value": value}), folder / "b.parquet"
    )
    job = Job("reading")
    job.source(Parquet(folder, made.event, on_error="dead-letter"), id="in").sink(LogSink(tmp_path / "log"), id="out")
    run_job(job, tmp_path / "root")
    assert got(logged(tmp_path / "log", made.event)) == [(n, plain(value)) for n, value in enumerate(KINDS[name].good)]
    assert letters(tmp_path / "root", "reading") == len(bad)


def _column(name: str, values: list[Any]) -> pa.Array:
    kinds = {
        "datetime": pa.timestamp("us", "UTC"),
        "date": pa.date32(),
        "Decimal": pa.decimal128(12, 2),
        "float": pa.float64(),
        "int": pa.int64(),
        "str": pa.string(),
    }
    return pa.array(values, kinds[name])


def test_a_log_takes_no_batch_out_of_range(tmp_path: Path) -> None:
    made = TYPES["datetime"]
    log = EventLog.create(tmp_path / "log", made.event)
    batch = pa.record_batch({"n": pa.array([1]), "value": PARQUET_BAD["datetime"][:1]}).cast(log.schema)
    with pytest.raises(StreamworkError, match="SW-TYPE-VALUE"):
        log.append(batch)
    with pytest.raises(StreamworkError, match="SW-TYPE-VALUE"):
        log.append(made.event(1, LATE))
    assert log.end(0) == 0


# ---- sinks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow(parallelism=[1, 3])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("name", KINDS)
def test_sinks(name: str, parallelism: int, tmp_path: Path) -> None:
    """Staged, committed, and read by programs that know nothing of Streamwork; a second start reads state and sinks again."""
    made, values = TYPES[name], mixed(name)
    for _ in range(2):
        job = Job("writing", parallelism=parallelism)
        key = ("value", "n") if KINDS[name].keyable else "n"
        stream = (
            job.source(ListSource(made.clean(values, name), made.event, max_events=6), id="in")
            .apply(made.spoiling(values), id="spoil", on_error="dead-letter", parallelism=1)
            .apply(made.keeping(), key=key, id="keep")
        )
        stream.sink(SqliteSink(tmp_path / "out.db", "journal"), id="journal", on_error="dead-letter")
        stream.sink(SqliteSink(tmp_path / "out.db", "latest", key=key), id="latest", on_error="dead-letter")
        stream.sink(LogSink(tmp_path / "log", key=key, partitions=parallelism), id="log")
        stream.sink(ParquetSink(tmp_path / "parquet"), id="parquet")
        run_job(job, tmp_path / "root")
    wanted = expected(name, values)
    assert got(logged(tmp_path / "log", made.event)) == wanted
    table = pq.read_table(tmp_path / "parquet", use_threads=False).select(["n", "value"])
    assert got([made.event(**row) for row in table.to_pylist()]) == wanted
    database = sqlite3.connect(tmp_path / "out.db")
    as_text = dict(zip(table.column("n").to_pylist(), with_text(_one(table)), strict=True))
    for target in ("journal", "latest"):  # SQLite has no NaN, so it refuses the row
        rows = sorted(database.execute(f"SELECT n, value FROM {target}"))
        assert len(rows) == len([value for _, value in wanted if value != "nan"]), target
        assert dict(rows) == {n: int(v) if name == "bool" else v for n, v in as_text.items() if v == v}, target


def _one(table: pa.Table) -> pa.Array:
    return pa.concat_arrays(table.column("value").chunks)


# ---- keys, timers, watermarks --------------------------------------------------------------------------------------------


@pytest.mark.proves("composite keys of many values")
def test_composite_keys_stay_apart() -> None:
    """Their codes were multiplied: with 2**13 values in each of five columns an int64 overflows, and two keys became one."""
    rows, columns = 2**13, 5
    names = [f"k{place}" for place in range(columns)]
    data = {name: np.arange(rows) for name in names}
    first = np.zeros(1, np.int64)
    batch = pa.record_batch({name: np.concatenate([data[name], first, first]) for name in names})
    last = pa.array(
        np.concatenate([data["k0"], [0], [2**12]])
    )  # 2**12 * (2**13)**4 is 2**64: the codes wrapped to those of 0
    batch = batch.set_column(0, "k0", last)
    codes, keys = distinct(batch, names)
    rows_of = list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
    assert keys.num_rows == len(set(rows_of)) == len(set(codes.tolist()))
    assert list(zip(*(keys.column(name).to_pylist() for name in names), strict=True)) == list(dict.fromkeys(rows_of))


@given(st.lists(st.tuples(*[st.integers(-3, 3) | st.none()] * 4), min_size=1, max_size=60), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_distinct_is_what_a_dict_says(rows: list[tuple[Any, ...]], shift: int) -> None:
    names = ["a", "b", "c", "d"]
    batch = pa.record_batch(
        {name: pa.array([row[place] for row in rows], pa.int64()) for place, name in enumerate(names)}
    )
    batch = batch.slice(min(shift, len(rows) - 1))
    rows = rows[min(shift, len(rows) - 1) :]
    codes, keys = distinct(batch, names)
    order = list(dict.fromkeys(rows))
    assert list(zip(*(keys.column(name).to_pylist() for name in names), strict=True)) == order
    assert codes.tolist() == [order.index(row) for row in rows]


def test_one_point_in_time_is_one_key_and_two_are_two() -> None:
    early, late = (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1))
    assert early == late and early.astimezone(UTC) != late.astimezone(UTC), "so says Python of two times of one zone"
    key = Key.of(TYPES["datetime"].event, "value")
    values = key.values([TYPES["datetime"].event(n, at) for n, at in enumerate([early, late, early.astimezone(UTC)])])
    assert values[0] != values[1] and values[0] == values[2] and len(set(values)) == 2
    both = Key.of(TYPES["datetime"].event, ("n", "value"))
    assert both.values([TYPES["datetime"].event(1, late)]) == [(1, late.astimezone(UTC))]


def moments(*times: Any) -> list[Moment]:
    return [Moment(n, at) for n, at in enumerate(times)]


@pytest.mark.parametrize("clock", ["event", "processing"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_timers(clock: str, parallelism: int) -> None:
    wishes = [*KINDS["datetime"].good, *KINDS["datetime"].bad[:4]]
    good = len(KINDS["datetime"].good)
    job = Job("waking", parallelism=parallelism)
    job.source(ListSource([], Moment), id="in", time="at", parallelism=1).apply(
        Waking(wishes, clock), key="n", id="wake", on_error="dead-letter"
    ).sink(NONE, id="out")
    times = [TOUCHED + timedelta(hours=n) for n in range(len(wishes))] + [datetime.max.replace(tzinfo=UTC)] * 3
    result = run(job, {"in": moments(*times)}, epoch_events=3, crash_at=25)
    fired = {-row.n - 1: row.at for row in result.outputs["out"] if row.n < 0}
    wanted = {n: plain(at) for n, at in enumerate(wishes[:good])}
    due = wanted if clock == "event" else {n: at for n, at in wanted.items() if at.year < 1970}
    assert fired == due
    assert all(at.tzinfo is UTC for at in fired.values()), "before a restart as behind it"
    assert len(result.letters) == len(wishes) - good
    assert all("ValueError: a timer needs" in letter.error for letter in result.letters)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_watermarks(parallelism: int) -> None:
    """At both ends, and where the clock of a zone shows an hour twice: event time never goes back, and survives a restart."""
    early, late = (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1))
    between = early.astimezone(UTC) + timedelta(minutes=30)
    times = [datetime.min.replace(tzinfo=UTC), early, late, datetime(9999, 12, 31, 23, 59, 59, tzinfo=EAST)]
    job = Job("passing", parallelism=parallelism)
    job.source(ListSource([], Moment), id="in", time="at", parallelism=1).apply(
        Waking([between]), key="n", id="wake"
    ).sink(NONE, id="out")
    for crash in (None, 6, 9, 12):
        result = run(job, {"in": moments(*times)}, epoch_events=1, crash_at=crash)
        rows = [row.n for row in result.outputs["out"]]
        assert max(rows.index(-1), rows.index(2)) < rows.index(3), (
            "half an hour behind the first of them, so with the second"
        )


def test_the_times_of_a_job_must_be_in_range(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StreamworkError, match="SW-TYPE-VALUE"):
        ListSource(moments(LATE))
    with pytest.raises(WrongUse, match="SW-EXPR-TYPE.*year 1 to 9999"):
        field("at") < LATE  # noqa: B015
    monkeypatch.setattr(times, "in_utc", lambda at: at)  # the control: times of one zone compare by their clock
    early, late = (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1))
    assert times.latest(moments(early, late), "at") == times.microseconds(early)


@pytest.mark.proves("the range check of values")
def test_without_the_range_a_time_is_staged_that_no_sink_can_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The control: prepared, and then raising at every commit. By now at least with a code."""
    made = TYPES["datetime"]
    monkeypatch.setattr(field_types, "is_time", lambda value: True)
    monkeypatch.setattr(field_types.TimeType, "check_column", lambda self, column: None)
    monkeypatch.setattr(fitting_module, "is_time", lambda value: True)
    fitting_module.fitting.cache_clear()
    job = Job("control")
    stream = job.source(ListSource(made.clean([LATE], "datetime")), id="in").apply(made.spoiling([LATE]), id="spoil")
    stream.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    try:
        for _ in range(2):
            with pytest.raises(StreamworkError, match="SW-SINK-FAILED: sink out .* could not commit .*OverflowError"):
                run_job(job, tmp_path / "root")
    finally:
        fitting_module.fitting.cache_clear()


class Broken(LogSink[Any]):
    """A sink of a person's own whose code is wrong."""

    def commit(self, entry: Any, staged: Any) -> None:
        raise KeyError("no such column")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Bursting(Operator[Number, Number]):
    def apply(self, event: Number, collector: Any) -> None:
        raise Unspeakable


@pytest.mark.parametrize("on_error", ["fail", "dead-letter"])
def test_an_exception_that_cannot_be_shown(on_error: Any) -> None:
    job = Job("bursting")
    job.source(ListSource([], Number), id="in").apply(Bursting(), id="burst", on_error=on_error).sink(NONE, id="out")
    if on_error == "fail":
        with pytest.raises(StreamworkError, match="SW-OPERATOR-FAILED.*Unspeakable, whose message cannot be printed"):
            run(job, {"in": [Number("a", 1)]})
    else:
        (letter,) = run(job, {"in": [Number("a", 1)]}).letters
        assert letter.error == "Unspeakable, whose message cannot be printed"


def test_what_a_sink_raises_gets_a_code(tmp_path: Path) -> None:
    job = Job("broken")
    job.source(ListSource([Number("a", 1)]), id="in").sink(Broken(tmp_path / "log"), id="out")
    with pytest.raises(StreamworkError, match="SW-SINK-FAILED: sink out .*KeyError: 'no such column'"):
        run_job(job, tmp_path / "root")


@pytest.mark.parametrize("where", ["_pass", "end", "open"])
@pytest.mark.proves("an exception without a code in the engine")
def test_what_the_engine_raises_gets_a_code(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ArithmeticError("unforeseen")

    monkeypatch.setattr(chain_module.Chain, where, broken)
    job = Job("engine")
    job.source(ListSource([Number("a", 1)]), id="in").sink(LogSink(tmp_path / "log"), id="out")
    with pytest.raises(
        StreamworkError, match="SW-ENGINE-FAILED: ArithmeticError: unforeseen .*test_values.py"
    ) as caught:
        run_job(job, tmp_path / "root")
    assert caught.value.exit_code == 1 and "epoch 1" in caught.value.cause


# ---- state by columns ----------------------------------------------------------------------------------------------------


def columns(kind: str) -> KeyedColumns:
    keys = pa.record_batch({"k": pa.array(["a", "b"])})
    return KeyedColumns(np.array([0, 1]), keys, {"x": np.zeros(2, kind)}, np.array([0, 1]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("i8", np.array([1, 2**63], np.uint64)),
        ("i8", np.array(2**63, np.uint64)),
        ("f8", np.array([0, 2**53 + 1])),
        ("f8", np.array([0, 2**63 + 1], np.uint64)),
        ("datetime64[us]", np.array(["2026-01-01T00:00:00.000000001", "NaT"], "datetime64[ns]")),
        ("datetime64[us]", np.array(["2026", "300000"], "datetime64[Y]")),
    ],
)
def test_state_columns_take_nothing_that_changes_on_the_way(kind: str, values: Any) -> None:
    state = columns(kind)
    with pytest.raises(OverflowError, match="cannot hold"):
        state["x"] = values
    assert not state["x"].astype("i8").any(), "nothing was put back"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("i8", np.array([2**63 - 1, 0], np.uint64)),
        ("i8", np.array([-(2**63), 2**63 - 1])),
        ("f8", np.array([2**53, -(2**53)])),
        ("f8", np.array([np.nan, np.inf], "f4")),
        ("datetime64[us]", np.array(["9999-12-31", "NaT"], "datetime64[ms]")),
    ],
)
def test_and_all_that_fits(kind: str, values: Any) -> None:
    state = columns(kind)
    state["x"] = values
    np.testing.assert_array_equal(state["x"], values.astype(kind))


class Total(Record):
    total: int = 0
    at: datetime = TOUCHED


class Adding(KeyedOperator[Number, Total, Number]):
    def __init__(self, what: str) -> None:
        self.what = what

    def apply_batch(self, batch: Any, state: Any, collector: Any) -> None:
        if self.what == "total":
            state["total"] = np.full(len(state), 2**63, np.uint64)
        elif self.what == "at":
            state["at"] = np.full(len(state), np.datetime64("20000-01-01", "us"))
        else:
            collector.emit_batch(batch)


@pytest.mark.parametrize(("what", "code"), [("total", "SW-OPERATOR-FAILED.*cannot hold"), ("at", "SW-TYPE-VALUE")])
def test_a_job_that_keeps_too_much_by_columns(what: str, code: str) -> None:
    job = Job("columns")
    job.source(ListSource([], Number), id="in").apply(Adding(what), key="key", id="add").sink(NONE, id="out")
    with pytest.raises(StreamworkError, match=code):
        run(job, {"in": [Number("a", 1)]})


class Late(Event):
    key: str
    at: datetime


class Shifting(KeyedOperator[Number, Total, Late]):
    def apply_batch(self, batch: Any, state: Any, collector: Any) -> None:
        times = pa.array([2**62] * batch.num_rows, pa.timestamp("us", "UTC"))
        collector.emit_batch(pa.record_batch({"key": batch["key"], "at": times}))


def test_a_batch_out_of_range_is_not_staged() -> None:
    job = Job("columns")
    job.source(ListSource([], Number), id="in").apply(Shifting(), key="key", id="add").sink(NONE, id="out")
    with pytest.raises(StreamworkError, match="SW-TYPE-EVENT: add emitted .*'at'.*year 1 to 9999"):
        run(job, {"in": [Number("a", 1)]})


# ---- random mixtures -----------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_mixture_of_extremes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(KEYABLE))
    kind, made = KINDS[name], TYPES[name]
    values = data.draw(st.lists(st.sampled_from([*kind.good, *kind.bad]), min_size=1, max_size=12))
    seed, parallelism = data.draw(st.integers(0, 2**16)), data.draw(st.sampled_from([1, 2, 3]))
    job = Job("mixed", parallelism=parallelism)
    stream = job.source(ListSource([], made.event), id="in").apply(
        made.spoiling(values), id="spoil", on_error="drop", parallelism=1
    )
    stream.apply(made.keeping(), key="value", id="one").apply(made.keeping(), key=("n", "value"), id="two").sink(
        NONE, id="out"
    )
    result = run(job, {"in": made.clean(values, name)}, seed=seed, crash_at=data.draw(st.integers(1, 60)))
    wanted = expected(name, values)
    assert got(result.outputs["out"]) == wanted
    assert {plain(key): kept.count for key, kept in result.states["one"].items()} == Counter(v for _, v in wanted)


@given(st.decimals(allow_nan=True, allow_infinity=True) | st.decimals(places=2, min_value=-(10**11), max_value=10**11))
@settings(max_examples=200, deadline=None)
def test_a_decimal_fits_if_its_digits_do(value: Decimal) -> None:
    made = TYPES["Decimal"]
    in_cents = value.is_finite() and abs(value.adjusted()) < 60 and value * 100 == int(value * 100)
    fitting = in_cents and abs(value) < 10**10
    try:
        ListSource([made.event(1, value)])
        entered = True
    except StreamworkError:
        entered = False
    if value or value.adjusted() in range(-40, 30):  # Arrow has no zero with such an exponent
        assert entered == fitting
