"""Spark while there is nothing to do, and when it takes too long."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cluster import python_workers
from patience_jobs import Dawdling, Dying, Impatient, Waking
from sample import Payment, expected_journal, payments, summing_job
from streamwork import Job, JobFailed, JsonLines, ListSource, SqliteSink
from streamwork.hosts import spark_epochs
from streamwork.hosts.spark_epochs import SparkEpochs
from streamwork.hosts.spark_life import KEEP_WARM_SECONDS
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run
from streamwork.run.stop_request import request_stop
from streamwork.world import RealClock
from waiting import wait_for

pytestmark = pytest.mark.spark


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'journal'").fetchone():
            return []
        return db.execute(query).fetchall()


class Hand(RealClock):
    """Goes on when it is told to."""

    at = 1000.0

    def monotonic(self) -> float:
        return self.at


@pytest.mark.slow
def test_workers_are_kept_warm_now_and_then_and_only_then(spark: Any) -> None:
    context, clock = spark.sparkContext, Hand()
    host = SparkEpochs(spark, clock)

    def jobs() -> int:
        return len(context.statusTracker().getJobIdsForGroup("warm"))

    context.setJobGroup("warm", "")
    try:
        for passed, expected in ((0.0, 0), (KEEP_WARM_SECONDS - 1, 0), (2.0, 1), (KEEP_WARM_SECONDS - 2, 1), (3.0, 2)):
            clock.at += passed
            host.keep_warm()
            assert jobs() == expected
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert python_workers(context._gateway.proc.pid), "they are there"
    assert KEEP_WARM_SECONDS < 60, "Spark ends those that are idle for a minute"


class Running:
    """A run in a thread of its own."""

    def __init__(self, job: Job, options: RunOptions) -> None:
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(job, options), daemon=True)
        self._thread.start()

    def _run(self, job: Job, options: RunOptions) -> None:
        try:
            self.outcome = run(job, options)
        except BaseException as error:
            self.error = error

    def wait(self) -> Outcome:
        self._thread.join(240)
        assert self.error is None and self.outcome is not None, self.error
        return self.outcome


@pytest.mark.slow
def test_while_idle_timers_fire_requests_are_answered_and_workers_stay(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_epochs, "KEEP_WARM_SECONDS", 0.3)
    described: list[str] = []
    context = type(spark.sparkContext)
    real = context.setJobDescription
    monkeypatch.setattr(context, "setJobDescription", lambda self, text: (described.append(text), real(self, text))[1])
    (tmp_path / "in.jsonl").write_text('{"card": "a", "amount": 1}\n')
    job = Job("idle", checkpoint_every=0)
    stream = job.source(JsonLines(tmp_path / "in.jsonl", Payment), id="in")
    due = datetime.now(UTC) + timedelta(seconds=2)
    stream.apply(Waking(due), key="card", id="waking").sink(SqliteSink(tmp_path / "out.db", "journal"), id="out")
    running = Running(job, RunOptions(mode=Mode.MICROBATCH, root=tmp_path / "root", restart=False))
    wait_for(lambda: running.error or rows(tmp_path / "out.db", "SELECT * FROM journal"))
    assert rows(tmp_path / "out.db", "SELECT card, number FROM journal") == [("a", 1)]
    assert datetime.now(UTC) >= due
    kept = described.count("keep its Python workers")
    wait_for(lambda: described.count("keep its Python workers") > kept)
    assert request_stop(tmp_path / "root", "idle", 120, RealClock(), lambda line: None).text == "stopped"
    assert running.wait().events == 1


class Told:
    steps: list[str]

    def __init__(self) -> None:
        self.steps = []

    def on_phase(self, step: Any, epoch: int, manifest: Any) -> None:
        self.steps.append(f"{step.value} {epoch}")

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, outcome: Any) -> None: ...
    def close(self) -> None: ...


@pytest.mark.slow
def test_an_epoch_that_takes_too_long_is_abandoned_and_its_input_is_read_again(tmp_path: Path, spark: Any) -> None:
    sign = tmp_path / "dawdling"
    events = payments(30)
    job = Job("dawdling", checkpoint_every=0, checkpoint_timeout="10min")
    stream = job.source(ListSource(events, Payment, max_events=10), id="payments")
    slow = stream.apply(Dawdling(str(sign), at=events[15]), id="dawdling")
    seen = slow.apply(summing_job(events, tmp_path / "x.db").graph()["sums"].component, key="card", id="sums")
    seen.sink(SqliteSink(tmp_path / "out.db", "journal"), id="journal")
    told, began = Told(), time.monotonic()
    options = RunOptions(mode=Mode.MICROBATCH, root=tmp_path / "root", until_caught_up=True, restart=False)
    outcome = run(job, options, told, Impatient(sign))
    assert time.monotonic() - began < Dawdling.SECONDS, "nobody has waited for it"
    assert "abandon 2" in told.steps and "complete 2" not in told.steps and "complete 4" in told.steps
    assert outcome.checkpoints == 3
    assert rows(tmp_path / "out.db", "SELECT card, number, total FROM journal ORDER BY rowid") == expected_journal(
        events
    )


@pytest.mark.slow
def test_an_action_that_fails_while_there_is_time_is_a_failure(tmp_path: Path, spark: Any) -> None:
    """The negative control: only what was cancelled for its time is abandoned."""
    events = payments(5)
    job = Job("dying", checkpoint_every=0, checkpoint_timeout="10min")
    stream = job.source(ListSource(events, Payment), id="payments")
    stream.apply(Dying(), id="dying").sink(SqliteSink(tmp_path / "out.db", "journal"), id="journal")
    with pytest.raises(JobFailed, match="SW-SPARK-FAILED"):
        run(job, RunOptions(mode=Mode.MICROBATCH, root=tmp_path / "root", until_caught_up=True, restart=False))
