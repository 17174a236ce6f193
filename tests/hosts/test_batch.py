"""`batch`: one epoch over everything there is, in a folder and with targets of its own, and the same results."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contract_jobs import Counter
from sample import Payment, Summing, expected_journal, payments, run_job, summing_job
from source_ends import end_of
from streamwork import DataFrameSource, EventLog, Job, JsonLines, ListSource, LogSource, Refused, SqliteSink
from streamwork.run.backfill import Whole

pytestmark = pytest.mark.spark


@pytest.fixture
def mode(spark: Any) -> str:
    return "batch"


def rows(database: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as db:
        return db.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def test_one_epoch_gives_what_many_give(tmp_path: Path, mode: str) -> None:
    events = payments(95)
    outcomes = {}
    for way in ("local", "microbatch", "batch"):
        outcomes[way] = run_job(summing_job(events, tmp_path / f"{way}.db"), tmp_path / way, way)
        assert rows(tmp_path / f"{way}.db", "journal") == expected_journal(events)
    assert {way: outcome.checkpoints for way, outcome in outcomes.items()} == {
        "local": 10,
        "microbatch": 10,
        "batch": 1,
    }
    last = [sorted(rows(tmp_path / f"{way}.db", "latest")) for way in outcomes]
    assert last[0] == last[1] == last[2]


@pytest.mark.slow
def test_it_has_a_folder_of_its_own_and_a_second_run_takes_what_has_come_since(tmp_path: Path, mode: str) -> None:
    events = payments(60)
    run_job(summing_job(events[:20], tmp_path / "out.db"), tmp_path / "root")
    before = {path: path.read_bytes() for path in (tmp_path / "root" / "summing").rglob("*.json")}
    for count in (30, 60):
        outcome = run_job(summing_job(events[:count], tmp_path / "filled.db"), tmp_path / "root", mode)
    assert (outcome.started, outcome.checkpoints, outcome.events) == ("resumed at checkpoint 1", 1, 30)
    assert {path.name for path in (tmp_path / "root").iterdir()} == {"summing", "summing@batch"}
    assert {path: path.read_bytes() for path in (tmp_path / "root" / "summing").rglob("*.json")} == before
    assert rows(tmp_path / "filled.db", "journal") == expected_journal(events)
    assert rows(tmp_path / "out.db", "journal") == expected_journal(events[:20])


def test_it_does_not_write_where_the_job_itself_writes(tmp_path: Path, mode: str) -> None:
    run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root")
    with pytest.raises(Refused) as caught:
        run_job(summing_job(payments(20), tmp_path / "out.db"), tmp_path / "root", mode)
    assert caught.value.code == "SW-SINK-OWNED"
    assert "a batch run is a job of its own" in caught.value.cause and "other tables or files" in caught.value.action
    assert rows(tmp_path / "out.db", "journal") == expected_journal(payments(20))


@pytest.mark.slow
def test_a_source_that_people_wrote_is_asked_until_it_has_no_more(tmp_path: Path, mode: str) -> None:
    job = Job("counting")
    job.source(Counter(25), id="numbers").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    assert run_job(job, tmp_path / "root", mode).checkpoints == 1
    assert [number for number, _ in rows(tmp_path / "out.db", "out")] == list(range(1, 26))


@pytest.mark.slow
def test_a_log_is_read_from_its_beginning_and_held_back_for_nobody(tmp_path: Path, mode: str) -> None:
    with EventLog.create(tmp_path / "log", Payment, partitions=2) as log:
        log.append(payments(50))
    job = Job("filling")
    source = LogSource(tmp_path / "log", Payment, max_events=3, start="latest")
    job.source(source, id="in").apply(Summing(), key="card", id="sums").sink(
        SqliteSink(tmp_path / "out.db", "out"), id="out"
    )
    assert run_job(job, tmp_path / "root", mode).checkpoints == 1
    assert sorted(rows(tmp_path / "out.db", "out")) == sorted(expected_journal(payments(50)))
    assert not list((tmp_path / "log").glob("consumers/*"))


@pytest.mark.slow
def test_a_data_frame_is_read_as_a_whole(tmp_path: Path, mode: str) -> None:
    def load(spark: Any) -> Any:
        return spark.range(40).selectExpr("id", "concat('card-', id % 3) AS card", "id AS amount")

    job = Job("framed")
    source = DataFrameSource(load, Payment, offset="id", max_events=7)
    job.source(source, id="in").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    outcome = run_job(job, tmp_path / "root", mode)
    assert (outcome.checkpoints, outcome.events) == (1, 40)
    assert rows(tmp_path / "out.db", "out") == [(f"card-{number % 3}", number) for number in range(40)]


def test_everything_is_what_there_is_at_the_first_look(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"card": "a", "amount": 1}\n' * 10)
    whole = Whole(JsonLines(path, Payment, max_events=2))
    size = path.stat().st_size
    assert end_of(whole, "0", 0, whole.max_events) == size
    path.write_text('{"card": "a", "amount": 1}\n' * 20)
    assert end_of(whole, "0", 0, whole.max_events) == end_of(whole, "0", size, whole.max_events) == size
    assert end_of(Whole(ListSource(payments(7), max_events=2)), "0", 7, 1) == 7
