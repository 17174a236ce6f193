"""Any batch DataFrame as a source: in order, each row once, filtered by Spark and still counted."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from frames import Passing, View, counting_job, expected_counts, is_any, view, views, write_views
from sample import run_job
from source_ends import end_of, latest_of
from streamwork import DataFrameSource, Job, JobFailed, ListSource, SqliteSink, WrongUse, field, shuffle
from streamwork.hosts.spark_table import SparkTable
from streamwork.testing import run

pytestmark = pytest.mark.spark


def rows(folder: Path, table: str = "counts") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def counters(root: Path, job: str = "viewed") -> dict[str, Counter[str]]:
    """Of all checkpoints that are kept, without the number of keys, which is no count of events."""
    found: dict[str, Counter[str]] = {}
    for path in (root / job / "checkpoints").glob("????????????.json"):
        for name, counted in json.loads(path.read_text())["counters"].items():
            counted.pop("keys", None)
            found.setdefault(name, Counter()).update(counted)
    return found


# ---- the way of the rows ------------------------------------------------------------------------------------------


@pytest.mark.slow(parallelism=3)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_come_once_and_in_order_and_are_counted_as_if_python_had_filtered(
    tmp_path: Path, spark: Any, parallelism: int
) -> None:
    for end, events in ((300, 300), (400, 100), (400, 0)):
        if end == 300:
            write_views(tmp_path / "views", 0, 120)
            write_views(tmp_path / "views", 120, 300)
        elif not (tmp_path / "views" / "000300.parquet").exists():
            write_views(tmp_path / "views", 300, 400)
        job = counting_job(views(tmp_path / "views", max_events=150), tmp_path, parallelism)
        outcome = run_job(job, tmp_path / "root", "microbatch", retain=9)
        assert outcome.events == events
    found = rows(tmp_path)
    assert sorted(found) == sorted(expected_counts(0, 400))  # `Counting` raises where the order is broken
    (tmp_path / "plain").mkdir()
    plain = counting_job(ListSource(list(map(view, range(400)))), tmp_path / "plain", parallelism)
    run_job(plain, tmp_path / "plain" / "root")
    mine, theirs = counters(tmp_path / "root"), counters(tmp_path / "plain" / "root")
    assert mine == theirs
    for name in ("only-views", "paid", "counts", "out"):
        counted = mine[name]
        assert counted["processed"] == counted["delivered"] + counted["ended_early"] + counted["dropped"] > 0


@pytest.mark.slow
def test_offsets_with_large_gaps_are_cut_by_rows(tmp_path: Path, spark: Any) -> None:
    write_views(tmp_path / "views", 5_000, 2_000_000, step=7_777)
    job = counting_job(views(tmp_path / "views", max_events=100), tmp_path)
    outcome = run_job(job, tmp_path / "root", "microbatch")
    assert (outcome.checkpoints, outcome.events) == (3, len(range(5_000, 2_000_000, 7_777)))
    assert rows(tmp_path) == expected_counts(5_000, 2_000_000, 7_777)


@pytest.mark.slow
def test_as_a_batch(tmp_path: Path, spark: Any) -> None:
    write_views(tmp_path / "views", 0, 200)
    outcome = run_job(counting_job(views(tmp_path / "views", max_events=20), tmp_path, 2), tmp_path / "root", "batch")
    assert (outcome.checkpoints, outcome.events) == (1, 200)
    assert sorted(rows(tmp_path)) == sorted(expected_counts(0, 200))


@pytest.mark.slow
def test_beside_other_sources_in_one_chain_and_with_nothing_new_in_one_of_them(tmp_path: Path, spark: Any) -> None:
    for name, start in (("a", 0), ("b", 50)):
        write_views(tmp_path / name, start, start + 30)
    for extra in (0, 5):
        if extra:
            write_views(tmp_path / "b", 80, 85)
        job = Job("several", checkpoint_every=0)
        listed = ListSource([view(n) for n in range(100, 110 + extra)], View)
        named = {"a": views(tmp_path / "a"), "list": listed, "b": views(tmp_path / "b")}
        streams = [job.source(source, id=name) for name, source in named.items()]
        both = streams[0].where(field("kind") == "view", id="some").union(*streams[1:])
        both.sink(SqliteSink(tmp_path / "out.db", "events"), id="out")
        run_job(job, tmp_path / "root", "microbatch")
    found = [row[0] for row in rows(tmp_path, "events")]
    expected = [n for n in range(30) if view(n).kind == "view"]
    assert found == [*expected, *range(100, 110), *range(50, 80), *range(110, 115), *range(80, 85)]


@pytest.mark.slow
def test_in_a_later_stage_where_others_pass_by(tmp_path: Path, spark: Any) -> None:
    write_views(tmp_path / "views", 100, 160)
    job = Job("late", checkpoint_every=0)
    early = job.source(ListSource([view(n) for n in range(40)], View), id="early")
    turned = early.filter(is_any, id="any").apply(Passing(), id="turned", grouping=shuffle(), parallelism=2)
    late = job.source(views(tmp_path / "views"), id="late", parallelism=2)
    both = turned.union(late.where(field("kind") == "view", id="only"))
    both.sink(SqliteSink(tmp_path / "out.db", "events"), id="out")
    run_job(job, tmp_path / "root", "microbatch")
    expected = [*range(40), *(n for n in range(100, 160) if view(n).kind == "view")]
    assert sorted(row[0] for row in rows(tmp_path, "events")) == expected


# ---- planning -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_planning_asks_spark_only_when_there_may_be_something_new(tmp_path: Path, spark: Any) -> None:
    write_views(tmp_path / "views", 0, 100)
    now = [0.0]
    table = SparkTable(spark, views(tmp_path / "views", look_every="2s"), "views", lambda: now[0])
    assert [table.end(start, 40) for start in (0, 40, 80)] == [40, 80, 100]
    assert {table.end(100, 40) for _ in range(50)} == {100}
    assert table.looks == 1
    write_views(tmp_path / "views", 100, 130)
    assert table.end(100, 40) == 100, "not yet"
    now[0] = 2.0
    assert (table.end(100, 1), table.end(100, 40), table.end(130, 40)) == (101, 130, 130)
    assert table.looks == 2
    now[0] = 10.0
    assert (table.end(130, 40), table.end(130, 40), table.looks) == (130, 130, 3)


def test_a_source_may_begin_at_the_latest_row(tmp_path: Path, spark: Any) -> None:
    write_views(tmp_path / "views", 0, 50)
    source = views(tmp_path / "views", start="latest", look_every=0)
    source.bind(SparkTable(spark, source, "views"))
    assert latest_of(source, "0") == 50
    assert end_of(source, "0", 50, 10) == 50


# ---- what does not fit --------------------------------------------------------------------------------------------


def bad_rows(spark: Any) -> Any:
    """Offset 2 has no user; no filter would let it through."""
    return spark.sql("SELECT id, IF(id = 2, 'other', 'view') kind, IF(id = 2, null, 'u') user, 2D amount FROM range(6)")


@pytest.mark.slow
def test_a_row_that_is_no_event_is_noticed_before_any_filter(tmp_path: Path, spark: Any) -> None:
    failing = counting_job(DataFrameSource(bad_rows, View, offset="id"), tmp_path)
    with pytest.raises(JobFailed, match="SW-SOURCE-BAD-EVENT: views offset 2, field 'user'"):
        run_job(failing, tmp_path / "root", "microbatch")
    dropping = counting_job(DataFrameSource(bad_rows, View, offset="id", on_error="drop"), tmp_path)
    outcome = run_job(dropping, tmp_path / "root", "microbatch")
    assert (outcome.events, outcome.dropped) == (6, 1)
    assert [row[2] for row in rows(tmp_path)] == [0, 1, 3, 4, 5]
    counted = counters(tmp_path / "root")
    assert {name: count for name, count in counted["views"].items() if count} == {
        "processed": 6,
        "delivered": 5,
        "dropped": 1,
    }
    assert counted["only-views"]["processed"] == 5


def test_columns_of_other_types_fit_where_nothing_is_lost(tmp_path: Path, spark: Any) -> None:
    query = (
        "SELECT cast(id AS short) place, id, cast('view' AS char(9)) kind, 'u' user, cast(id AS float) amount "
        "FROM (SELECT cast(id AS int) id FROM range(9))"
    )
    source = DataFrameSource(lambda spark: spark.sql(query), View, offset="place")
    job = Job("other", checkpoint_every=0)
    stream = job.source(source, id="views").where((field("amount") > 3) & (field("kind") != "x"), id="some")
    stream.sink(SqliteSink(tmp_path / "out.db", "events"), id="out")
    run_job(job, tmp_path / "root", "microbatch")
    assert [(row[0], row[3]) for row in rows(tmp_path, "events")] == [(n, float(n)) for n in range(4, 9)]


RIGHT = "SELECT id, 'view' kind, 'u' user, 1D amount FROM range(3)"
CASES: list[tuple[str, str, str, str]] = [
    ("SELECT id, 'view' kind, 'u' user FROM range(3)", "id", "SW-SOURCE-SCHEMA", "no column 'amount'"),
    (RIGHT.replace("1D", "'1'"), "id", "SW-SOURCE-SCHEMA", "column 'amount' is string"),
    (
        RIGHT.replace("SELECT id", "SELECT id / 2 id"),
        "id",
        "SW-SOURCE-OFFSET",
        "'id' is double, not one column of whole",
    ),
    (RIGHT, "nr", "SW-SOURCE-OFFSET", "'nr' is there 0 times"),
    (RIGHT.replace("SELECT id", "SELECT id - 1 id"), "id", "SW-SOURCE-OFFSET", "has a row with offset -1"),
    (RIGHT.replace("SELECT id", "SELECT nullif(id, 1) id"), "id", "SW-SOURCE-OFFSET", "has a row with no offset"),
    (RIGHT.replace("SELECT id", "SELECT id div 2 id"), "id", "SW-SOURCE-OFFSET", "two rows have the offset 0"),
    (RIGHT.replace("range(3)", "nowhere"), "id", "SW-SOURCE-LOAD", "TABLE_OR_VIEW_NOT_FOUND"),
    (RIGHT.replace("1D", "raise_error('no')"), "id", "SW-SPARK-FAILED", "no"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("query", "offset", "code", "words"), CASES)
def test_what_is_wrong_with_a_frame_is_told(
    tmp_path: Path, spark: Any, query: str, offset: str, code: str, words: str
) -> None:
    job = counting_job(DataFrameSource(lambda spark: spark.sql(query), View, offset=offset), tmp_path)
    with pytest.raises(JobFailed) as caught:
        run_job(job, tmp_path / "root", "microbatch")
    assert caught.value.code == code
    assert words in caught.value.cause


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (lambda spark: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda spark: [1], "it gave a list, not a batch DataFrame"),
        (lambda spark: spark.readStream.format("rate").load(), "it gave a streaming DataFrame"),
    ],
)
def test_a_load_that_gives_no_batch_is_told(tmp_path: Path, spark: Any, load: Any, words: str) -> None:
    source = DataFrameSource(load, View, offset="id")
    source.bind(SparkTable(spark, source, "views"))
    with pytest.raises(JobFailed, match=f"SW-SOURCE-LOAD: views: the DataFrame cannot be had: {words}"):
        end_of(source, "0", 0, 10)


# ---- without Spark ------------------------------------------------------------------------------------------------


def test_local_mode_refuses_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="SW-SOURCE-NO-SPARK: source 'views' reads a DataFrame"):
        run_job(counting_job(views(tmp_path / "views"), tmp_path), tmp_path / "root")
    assert list(tmp_path.iterdir()) == []


def test_a_simulated_run_is_given_the_events() -> None:
    result = run(counting_job(views(Path("nowhere")), Path()), inputs={"views": [view(n) for n in range(40)]})
    assert [(row.user, row.number, row.id) for row in result.outputs["out"]] == expected_counts(0, 40)
    with pytest.raises(WrongUse, match="SW-SOURCE-NO-SPARK"):
        run(counting_job(views(Path("nowhere")), Path()))


def test_load_must_be_a_function() -> None:
    with pytest.raises(WrongUse, match="SW-JOB-SETTING.*`load` of DataFrameSource is a str"):
        DataFrameSource("views.parquet", View, offset="id")  # type: ignore[arg-type]
