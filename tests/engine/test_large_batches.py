"""Batches, states and files around the limit of a batch, lowered: nothing is lost, whatever is larger than one batch."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from large_jobs import Indexing, Page, Passing, Refusing, Site, pages
from sample import run_job
from state import test_large_state as large_state
from streamwork import EventLog, Job, JobFailed, ListSource, LogSink, LogSource, Parquet, ParquetSink, SqliteSink
from streamwork.components import Key, batches, columns, parquet_file
from streamwork.connectors import pieces
from streamwork.epoch import Store
from streamwork.flow import outlet
from streamwork.flow.batch import Batch
from streamwork.flow.channel import CheckpointEvent, Data, Part
from streamwork.flow.parcel import Wire
from streamwork.hosts import spark_rows
from streamwork.job import Input, Layout
from streamwork.state import StateFiles, compaction, files, layer, layers
from streamwork.state import merge as merging
from streamwork.state.rows import RowFormat
from streamwork.world import RealDisk
from tiers import quick_every

EVENTS = pages(600)


@pytest.fixture(params=quick_every(2, [300, 5_000]))
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of a batch, in bytes; and wherever batches are joined, none of several rows is larger."""
    most = int(request.param)
    monkeypatch.setattr(batches, "MOST_BYTES", most)
    concat = pa.concat_batches

    def checked(some: list[pa.RecordBatch]) -> pa.RecordBatch:
        made = concat(some)
        assert made.nbytes <= most, "a batch larger than the limit"
        return made

    monkeypatch.setattr(pa, "concat_batches", checked)
    return most


def job_of(folder: Path, semantics: str = "exactly-once") -> Job:
    job = Job("large", checkpoint_every=0, semantics=semantics)
    found = job.source(ListSource(EVENTS, Page, max_events=150), id="pages").apply(Passing(), id="passing")
    found.apply(Indexing(), key="site", id="sites", parallelism=2).sink(ParquetSink(folder / "parquet"), id="parquet")
    found.sink(SqliteSink(folder / "out.db", "pages", key="number"), id="sqlite")
    found.sink(LogSink(folder / "log", key="site", partitions=3), id="log")
    return job


def check_sinks(folder: Path) -> None:
    tables = duckdb.sql(f"SELECT * EXCLUDE epoch FROM read_parquet('{folder}/parquet/epoch=*/*.parquet')").fetchall()
    state: dict[str, tuple[int, list[str]]] = {}
    expected = []
    for event in EVENTS:
        count, texts = state.get(event.site, (0, []))
        state[event.site] = (count + 1, [*texts, *event.words][-4:])
        expected.append((event.site, count + 1, event.text, state[event.site][1]))
    assert sorted(tables) == sorted(expected)
    with sqlite3.connect(folder / "out.db") as db:
        rows = db.execute("SELECT number, text FROM pages ORDER BY number").fetchall()
    assert rows == [(event.number, event.text) for event in EVENTS]
    with EventLog(folder / "log", Page) as log:
        read = [event for number in log.partitions() for event in _events(log, number)]
    assert sorted(read, key=lambda page: page.number) == EVENTS


def _events(log: EventLog[Page], partition: int) -> list[Page]:
    found = log.read(partition, 0, log.end(partition))
    return [event for batch in found for event in columns.to_structs(Page, batch)]


@pytest.mark.slow(semantics="at-least-once")
@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once"])
@pytest.mark.proves("a column of more than 2 GiB (the limit is lowered)")
def test_every_sink_has_every_row(tmp_path: Path, semantics: str) -> None:
    run_job(job_of(tmp_path, semantics), tmp_path / "root")
    check_sinks(tmp_path)


@pytest.mark.parametrize("where", [columns, pieces], ids=["as_columns", "gathered"])
@pytest.mark.proves("all batches of a table, not only the first")
def test_without_the_rest_rows_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any) -> None:
    """The negative control: the first batch is taken for all of them."""
    joined = batches.joined

    def first(some: Any, rows: int | None = None) -> Any:
        for run in batches.gathered(list(some), rows) if rows else [list(some)]:
            with monkeypatch.context() as patch:
                patch.setattr(batches, "MOST_BYTES", 300)
                yield next(iter(joined(run)))

    monkeypatch.setattr(where, "joined", first)
    run_job(job_of(tmp_path), tmp_path / "root")
    with pytest.raises(AssertionError):
        check_sinks(tmp_path)


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("source", ["parquet", "log"])
def test_every_row_of_a_source_is_read(tmp_path: Path, source: str) -> None:
    table = pa.Table.from_batches(columns.to_batches(Page, EVENTS, "here"))
    (tmp_path / "pages.parquet").write_bytes(parquet_file.to_bytes(table))
    with EventLog.create(tmp_path / "pages", Page) as log:
        log.append(EVENTS)
    given = Parquet(tmp_path / "pages.parquet", Page) if source == "parquet" else LogSource(tmp_path / "pages", Page)
    job = Job("copy", checkpoint_every=0)
    job.source(given, id="pages").sink(SqliteSink(tmp_path / "out.db", "pages", key="number"), id="out")
    run_job(job, tmp_path / "root")
    with sqlite3.connect(tmp_path / "out.db") as db:
        rows = db.execute("SELECT number, text FROM pages ORDER BY number").fetchall()
    assert rows == [(event.number, event.text) for event in EVENTS]


def test_rows_of_a_file_that_arrow_reads_only_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Arrow does with nested columns beyond its limits: it refuses, in the middle of a file too."""
    table = pa.Table.from_batches(columns.to_batches(Page, EVENTS, "here"))
    (tmp_path / "pages.parquet").write_bytes(parquet_file.to_bytes(table))
    import pyarrow.parquet as pq

    class Shrunk(pq.ParquetFile):  # type: ignore[misc]
        def iter_batches(self, batch_size: int, **options: Any) -> Any:
            for batch in super().iter_batches(batch_size, **options):
                if batch.num_rows > 20 and batch.column("number")[-1].as_py() > 100:
                    raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked arrays")
                yield batch

    monkeypatch.setattr("streamwork.connectors.parquet.pq.ParquetFile", Shrunk)
    source: Any = Parquet(tmp_path / "pages.parquet", Page)
    (partition,) = source.partitions()
    read = [event for piece in source.read(partition, 30, 570) for event in columns.as_events(piece.given)]
    assert read == EVENTS[30:570]


@pytest.mark.slow(fields=[("text",), ("number",)])
@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("eager", [0, 100_000])
@pytest.mark.parametrize("fields", [("text",), ("text", "maybe"), ("number",)], ids="+".join)
@pytest.mark.proves("state of more than 2 GiB (the limit is lowered)")
def test_state_beyond_a_batch_is_the_same(monkeypatch: pytest.MonkeyPatch, fields: Any, eager: int) -> None:
    """Through deltas, snapshots, layers, restarts and caches, beside a plain dict."""
    monkeypatch.setattr(files, "EAGER_ROWS", eager)
    monkeypatch.setattr(layer, "SPILL_BYTES", 200)
    monkeypatch.setattr(layers, "BACKGROUND_ROWS", 10)
    for seed in range(3):
        large_state.Life(fields, random.Random(seed), memory=random.Random(seed).choice([1, 2_000])).run(15)


@pytest.mark.proves("all keys of a merge")
def test_a_merge_of_some_of_the_keys_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: of the distinct keys only the first chunk counts."""
    last = merging._last
    monkeypatch.setattr(merging, "_last", lambda keys, key: last(keys, key)[: max(1, keys.num_rows // 3)])
    monkeypatch.setattr(files, "EAGER_ROWS", 0)
    with pytest.raises(AssertionError):
        for seed in range(3):
            large_state.Life(("text",), random.Random(seed), memory=1).run(15)


@pytest.mark.usefixtures("limit")
@pytest.mark.proves("files of a state of more than 2 GiB")
def test_state_in_files_can_be_read_back_and_compacted(tmp_path: Path) -> None:
    run_job(job_of(tmp_path), tmp_path / "root")
    store = Store(RealDisk(), tmp_path / "root", "large")
    manifest = store.manifest(max(store.completed()))
    state = StateFiles(RealDisk(), store.folder)
    found, rows = {}, RowFormat("sites", Page, Key(("site",)), Site, 256)
    for chain in manifest.components["sites"].values():
        ref = compaction.compact(state, chain, rows, "1-test")
        found |= {row["site"]: (row["pages"], row["last"]) for row in state.read(ref).to_pylist()}
    counts: dict[str, int] = {}
    expected = {}
    for event in EVENTS:
        counts[event.site] = counts.get(event.site, 0) + 1
        expected[event.site] = (counts[event.site], event.text)
    assert found == expected


@pytest.mark.usefixtures("limit")
def test_every_dead_letter_is_kept(tmp_path: Path) -> None:
    from streamwork.delivery.letters import DeadLetters

    job = Job("letters", checkpoint_every=0)
    kept = job.source(ListSource(EVENTS, Page, max_events=200), id="pages")
    kept.apply(Refusing(), id="refusing", on_error="dead-letter").sink(SqliteSink(tmp_path / "o.db", "t"), id="out")
    run_job(job, tmp_path / "root")
    letters = DeadLetters(RealDisk(), tmp_path / "root" / "letters").all()
    assert len(letters) == len(EVENTS)


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("as_given", [list, lambda some: columns.Columns(Page, columns.to_batch(Page, some, "here"))])
def test_every_event_gets_through_an_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_given: Any) -> None:
    """As parcels, and as rows of Spark's."""
    monkeypatch.setattr(spark_rows, "MOST_BYTES", 20_000)
    job = Job("exchange")
    found = job.source(ListSource(EVENTS, Page), id="pages")
    found.apply(Indexing(), key="site", id="sites", parallelism=2).sink(SqliteSink(tmp_path / "o.db", "t"), id="out")
    layout = Layout.of(job.graph(), 256)
    wire = Wire(layout)
    sending = outlet.Outlet(wire, (0, 0), (1, 0), "attempt")
    for start in range(0, len(EVENTS), 250):
        with monkeypatch.context() as patch:
            patch.setattr(batches, "MOST_BYTES", 1 << 27)
            given = as_given(EVENTS[start : start + 250])
        sending.send(Data(1, (Part(Input("pages", "main"), "sites", Batch(given)),)))
    sending.send(CheckpointEvent(1, "attempt"))
    rows = list(spark_rows.Rows(layout, 0).batches(sending.ready()))
    got = [item for parcel in spark_rows.parcels(rows) for item in wire.unpack(parcel.head, parcel.content)]
    parts = [part for item in got if isinstance(item, Data) for part in item.parts]
    assert [event for part in parts for event in part.batch.events] == EVENTS


def test_a_parcel_that_no_row_can_hold_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_rows, "MOST_BYTES", 10)
    with pytest.raises(JobFailed, match="SW-EVENT-SIZE"):
        spark_rows._binary([b"x" * 11])
