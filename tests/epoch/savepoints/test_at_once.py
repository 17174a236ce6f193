"""Savepoints of jobs whose instances write to the sinks themselves: a start from them keeps what is promised."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crashes import Crash, CrashAt
from sample import Payment, run_job
from streamwork import Job, ListSource, SqliteSink
from streamwork.components import Position
from streamwork.epoch import Phase, Store
from streamwork.epoch.savepoints.saving import Saver
from streamwork.run.savepoints import create_savepoint
from streamwork.world import RealClock, RealDisk

EVENTS = [Payment(f"card-{number}", number) for number in range(40)]


def passing_on(folder: Path, semantics: str) -> Job:
    job = Job("passing", semantics=semantics, checkpoint_every=0)
    payments = job.source(ListSource(EVENTS, Payment, max_events=10), id="payments")
    payments.sink(SqliteSink(folder / "out.db", "out"), id="out")
    return job


def rows_after_a_start(folder: Path, semantics: str) -> Counter[int]:
    """It breaks off in its second epoch, when the rows are written; a savepoint is made, and a start from it reads to the end."""
    job = passing_on(folder, semantics)
    with pytest.raises(Crash):
        run_job(job, folder / "root", watcher=CrashAt(1, Phase.REPORT))
    made = create_savepoint(
        passing_on(folder, semantics), Store(RealDisk(), folder / "root", "passing"), "one", "", 60, RealClock()
    )
    run_job(passing_on(folder, semantics), folder / "elsewhere", from_=made.path)
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return Counter(amount for (amount,) in db.execute("SELECT amount FROM out"))


@pytest.mark.proves("a start from a savepoint of a job that broke off in an epoch")
@pytest.mark.parametrize("semantics", ["at-most-once", "at-least-once", "exactly-once"])
def test_a_start_from_a_savepoint_of_a_job_that_broke_off(tmp_path: Path, semantics: str) -> None:
    rows = rows_after_a_start(tmp_path, semantics)
    twice = {number for number, count in rows.items() if count > 1}
    missing = set(range(40)) - rows.keys()
    assert missing == set()
    assert twice == (set(range(10, 20)) if semantics == "at-least-once" else set())


@pytest.mark.proves("how far input may have been processed")
def test_control_without_how_far_it_may_have_read_at_most_once_writes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = Saver.capture

    def forgetful(saver: Any, *given: Any) -> Any:
        return capture(saver, *given[:3], Position())

    monkeypatch.setattr(Saver, "capture", forgetful)
    rows = rows_after_a_start(tmp_path, "at-most-once")
    assert {number for number, count in rows.items() if count > 1} == set(range(10, 20))
