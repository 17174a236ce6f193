"""Read uncommitted: rows are seen before their checkpoint, apart from the others, and never stay if it comes to nothing."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from crashes import Crash, CrashAt
from sample import Payment, Summing, run_job
from streamwork import Job, ListSource, SqliteSink, WrongUse
from streamwork.components import LedgerEntry
from streamwork.epoch import Step

EVENTS = [Payment(f"card-{i % 3}", i) for i in range(40)]
PER_EPOCH = 10


def job(sink: Any, isolation: str = "read-uncommitted", **settings: Any) -> Job:
    made = Job("shown", checkpoint_every=0, **settings)
    seen = made.source(ListSource(EVENTS, Payment, max_events=PER_EPOCH), id="payments")
    seen.apply(Summing(), key="card", id="sums").sink(sink, id="out", isolation=isolation)
    return made


def count(database: Path, what: str) -> int:
    with closing(sqlite3.connect(database)) as db:
        (found,) = db.execute(f"SELECT count(*) FROM {what}").fetchone()
    return int(found)


class Looking(SqliteSink[Any]):
    """Looks, before each commit, at what readers see."""

    seen: ClassVar[list[tuple[int, int]]] = []  # (committed, dirty)

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        self.seen.append((count(self.path, "out"), count(self.path, "out__dirty")))
        super().commit(entry, staged)


def test_who_reads_dirty_sees_rows_before_they_are_committed(tmp_path: Path, mode: str) -> None:
    Looking.seen.clear()
    run_job(job(Looking(tmp_path / "out.db", "out")), tmp_path / "root", mode)
    committed = [one for one, _ in Looking.seen]
    assert committed == [0, 10, 20, 30]
    # On Spark the next epoch is computed meanwhile, and shown too.
    assert all(one + PER_EPOCH <= dirty <= one + 2 * PER_EPOCH for one, dirty in Looking.seen)
    assert (count(tmp_path / "out.db", "out"), count(tmp_path / "out.db", "out__dirty")) == (40, 40)


@pytest.mark.parametrize("steps", range(4 + 4 * 7))
def test_a_crash_anywhere_leaves_nothing_that_did_not_count(tmp_path: Path, steps: int) -> None:
    database = tmp_path / "out.db"
    with pytest.raises(Crash):
        run_job(job(SqliteSink(database, "out")), tmp_path / "root", watcher=CrashAt(steps))

    class Watching(CrashAt):
        def on_step(self, step: Step, epoch: int, manifest: Any) -> None:
            if step is Step.READY:  # before the first source is read
                with closing(sqlite3.connect(database)) as db:
                    views = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'out__dirty'").fetchone()
                assert not views[0] or count(database, "out") == count(database, "out__dirty")

    run_job(job(SqliteSink(database, "out")), tmp_path / "root", watcher=Watching(10**9))
    with closing(sqlite3.connect(database)) as db:
        rows = Counter(db.execute("SELECT card, number, total FROM out"))
    assert sum(rows.values()) == len(EVENTS) == len(rows)
    assert count(database, "out__dirty") == len(EVENTS)


@pytest.mark.parametrize("settings", [{"semantics": "at-least-once"}, {"semantics": "at-most-once"}])
def test_where_rows_are_written_at_once_there_is_nothing_to_preview(settings: dict[str, str]) -> None:
    with pytest.raises(WrongUse, match="(?s)SW-JOB-SEMANTICS.*read-uncommitted"):
        job(SqliteSink("x.db", "out"), **settings).graph()
