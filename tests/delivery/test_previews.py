"""Read uncommitted: rows are seen before their checkpoint, apart from the others, and never stay if it comes to nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from crashes import Crash, CrashAt
from sample import Payment, Summing, run_job
from streamwork import Job, ListSource, Operator, SqliteSink, WrongUse
from streamwork.components import LedgerEntry, Slice
from streamwork.engine.adaptive_batch import AdaptiveBatch
from streamwork.epoch import Phase

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
    if mode == "live":  # where epochs are cut is a matter of time
        assert committed[0] == 0 and max(dirty - one for one, dirty in Looking.seen) > 0
    else:
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
        def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
            if step is Phase.READY:  # before the first source is read
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


class Slow(Operator[Payment, Payment]):
    """An epoch of it takes a second and a half, unless somebody has seen enough."""

    enough: ClassVar[threading.Event] = threading.Event()

    def apply(self, event: Payment, collector: Any) -> None:
        self.enough.wait(1.5 / len(EVENTS))
        collector.emit(event)


@pytest.mark.parametrize("exchanged", [False, True])
def test_rows_are_seen_while_their_checkpoint_is_computed(tmp_path: Path, exchanged: bool) -> None:
    database, found = tmp_path / "out.db", []
    Slow.enough.clear()
    made = Job("slow", checkpoint_every=0)
    seen = made.source(ListSource(EVENTS, Payment), id="payments").apply(Slow(), id="slow")
    if exchanged:
        seen = seen.apply(Summing(), key="card", id="sums", parallelism=2)
    seen.sink(SqliteSink(database, "out"), id="out", isolation="read-uncommitted")

    def look() -> None:
        while not found and not Slow.enough.wait(0.005):
            with closing(sqlite3.connect(database)) as db, suppress(sqlite3.OperationalError):
                rows = db.execute("SELECT __epoch FROM out__dirty").fetchall()
                if rows and not db.execute("SELECT count(*) FROM out").fetchone()[0]:
                    found.append((len(rows), rows[0][0]))

    reader = threading.Thread(target=look)
    reader.start()
    run_job(made, tmp_path / "root")
    Slow.enough.set()
    reader.join()
    assert found, "no preview was seen before the commit"
    shown, epoch = found[0]
    assert 0 < shown < len(EVENTS) and epoch == 1
    assert count(database, "out") == count(database, "out__dirty") == len(EVENTS)


def test_the_view_is_there_before_the_first_epoch(tmp_path: Path) -> None:
    views = []

    class Watching(CrashAt):
        def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
            if step is Phase.READY:
                views.append(count(tmp_path / "out.db", "out__dirty"))

    run_job(job(SqliteSink(tmp_path / "out.db", "out")), tmp_path / "root", watcher=Watching(10**9))
    assert views == [0]


def test_a_pace_follows_the_work() -> None:
    now, cut = 0.0, []
    pace = AdaptiveBatch(lambda: now)
    for part in pace.cut(list(range(1_000))):
        cut.append(len(part))
        now += 0.01 * len(part)  # 10 ms each
    assert sum(cut) == 1_000 and cut[:4] == [1, 2, 4, 8]
    assert all(one <= 16 for one in cut) and cut[-2] >= 5, "about a tenth of a second"


def test_what_was_left_out_goes_with_the_first_part() -> None:
    piece = Slice([1, 2, 3], 7, dropped=2, left_out={"where": 4})
    piece.letters.append(("text", "why"))
    parts = list(AdaptiveBatch(lambda: 0.0).slices(piece))
    assert [part.given for part in parts] == [[1], [2, 3]]
    assert [(part.dropped, part.letters, part.left_out) for part in parts] == [
        (2, [("text", "why")], {"where": 4}),
        (0, [], {"where": 0}),
    ]
    (empty,) = AdaptiveBatch(lambda: 0.0).slices(Slice([], 0, dropped=1))
    assert (empty.given, empty.dropped) == ([], 1)
