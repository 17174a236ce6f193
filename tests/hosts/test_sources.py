"""Sources on every host: those that people write, and where reading begins."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contract_jobs import Counted, Counter, Place
from sample import Payment, Summing, payments, run_job
from streamwork import (
    EventLog,
    Job,
    JobFailed,
    JsonLines,
    ListSource,
    LogSource,
    Source,
    SqliteSink,
    StatefulSource,
    WrongUse,
)
from streamwork.testing import explore, run


def rows(folder: Path, table: str = "out") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def counting(folder: Path, limit: int) -> Job:
    job = Job("counting", checkpoint_every=0)
    job.source(Counter(limit), id="numbers").sink(SqliteSink(folder / "out.db", "out"), id="out")
    return job


def test_a_source_that_people_wrote_goes_on_where_it_was(tmp_path: Path, mode: str) -> None:
    for limit in (10, 10, 25):
        run_job(counting(tmp_path, limit), tmp_path / "root", mode)
    assert rows(tmp_path) == [(number, "i0") for number in range(1, 26)]
    newest = max((tmp_path / "root" / "counting" / "checkpoints").glob("????????????.json"))
    assert '"numbers/0": 25' in newest.read_text()


@pytest.mark.slow
def test_it_survives_any_crash() -> None:
    job = counting(Path(), 20)

    def check(plain: Any, result: Any) -> None:
        assert [row.number for row in result.outputs["out"]] == list(range(1, 21))
        assert result.states["numbers"] == {0: Place(20)}

    assert explore(job, {}, seeds=100, check=check).crashes > 20


def test_each_instance_has_a_place_of_its_own() -> None:
    job = Job("two")
    job.source(Counter(5), id="numbers", parallelism=2).sink(SqliteSink("x.db", "t"), id="out")
    result = run(job)
    assert sorted((row.sensor, row.number) for row in result.outputs["out"]) == [
        (f"i{instance}", number) for instance in range(2) for number in range(1, 6)
    ]


class Fleeting(Source[Counted]):
    pass


class Unsure(StatefulSource[Counted, Place]):
    pass


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("source", [Fleeting(), Unsure()])
def test_replaying_needs_a_source_that_can_give_the_same_again(source: Any, semantics: str) -> None:
    job = Job("j", semantics=semantics)
    job.source(source, id="in")
    with pytest.raises(WrongUse, match="(?s)SW-JOB-SEMANTICS.*'in'.*replayable"):
        job.graph()


class Broken(Counter):
    def get_events(self, collector: Any) -> None:
        raise ConnectionError("gone")


class Mistaken(Counter):
    def get_events(self, collector: Any) -> None:
        collector.emit("text")


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize(
    ("source", "message"),
    [(Broken(1), "numbers.*ConnectionError: gone"), (Mistaken(1), "expected Counted but got str")],
)
def test_a_source_that_fails_is_named(tmp_path: Path, mode: str, source: Any, message: str) -> None:
    job = Job("failing")
    job.source(source, id="numbers").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    with pytest.raises(JobFailed, match=message):
        run_job(job, tmp_path / "root", mode)


def latest_job(folder: Path, source: Any) -> Job:
    job = Job("latest")
    job.source(source, id="in").apply(Summing(), key="card", id="sums").sink(
        SqliteSink(folder / "out.db", "out"), id="out"
    )
    return job


@pytest.mark.parametrize("kind", ["lines", "log"])
def test_a_source_may_skip_to_the_latest_event_at_every_start(tmp_path: Path, kind: str) -> None:
    """State is kept, what came while the job was down is not read."""

    def append(*cards: str) -> None:
        if kind == "log":
            with EventLog.create(tmp_path / "in", Payment, exist_ok=True) as log:
                log.append([Payment(card, 1) for card in cards])
        else:
            with (tmp_path / "in").open("a") as file:
                file.write("".join(f'{{"card": "{card}", "amount": 1}}\n' for card in cards))

    def source(start: Any) -> Any:
        return (
            LogSource(tmp_path / "in", Payment, start=start)
            if kind == "log"
            else JsonLines(tmp_path / "in", Payment, start=start)
        )

    append("a", "b")
    run_job(latest_job(tmp_path, source("stored")), tmp_path / "root")
    append("a")
    assert run_job(latest_job(tmp_path, source("latest")), tmp_path / "root").events == 0
    append("a", "c")
    assert run_job(latest_job(tmp_path, source("stored")), tmp_path / "root").events == 3, (
        "nothing was read, so nothing was skipped"
    )
    assert [row[:2] for row in rows(tmp_path)] == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("c", 1)]


def test_start_must_be_known() -> None:
    with pytest.raises(WrongUse, match="SW-JOB-SETTING.*start="):
        Job("j").source(ListSource(payments(1), start="now"), id="in")  # type: ignore[arg-type]
