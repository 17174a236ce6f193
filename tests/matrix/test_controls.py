"""Negative controls of exactly-once: without the guard, the same checkers fail."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from matrix.faults import Fault
from matrix.oracles import check, check_agreement
from matrix.stories import behind, cases, crash_and_go_on, failure, fallen_back, two_drivers
from matrix.targets import SINKS
from matrix.world import EVENTS, MORE, SLICE, World
from streamwork import SqliteSink
from streamwork.components import LedgerEntry, LedgerRow, commit_rule
from streamwork.connectors import log, sqlite
from streamwork.epoch import Verdict, pruning
from streamwork.epoch.fences import Fences
from streamwork.epoch.recovery import recovery
from streamwork.epoch.recovery.catch_up import Route
from streamwork.epoch.store import Store
from streamwork.log.transactions import Transactions

pytestmark = pytest.mark.usefixtures("short_chains")


# ---- negative controls: without the guard, the same checkers fail ---------------------------------------------------


def crashing(folder: Path, at: str, sinks: str = "SQLite + log", operator: str = "sums") -> str:
    check_all = check_agreement if operator == "draws" else check
    fault = Fault(at, 3, dead=True)
    return failure(lambda: crash_and_go_on(World(folder, SINKS[sinks], operator), fault, check_all))


def catching_up(folder: Path, size: int = SLICE) -> str:
    def attempt() -> None:
        world = fallen_back(folder)
        world.slice = size
        world.live(MORE).survived()
        check(world, MORE)

    return failure(attempt)


@pytest.mark.proves("the ledger")
def test_without_the_ledger_rows_come_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cell(name: str, at: str, sinks: str) -> str:
        return failure(lambda: crash_and_go_on(World(folder / name, SINKS[sinks]), Fault(at, dead=True)))

    assert cell("guarded", "told commit *", "SQLite + log") == ""
    for connector in (sqlite, log):
        monkeypatch.setattr(connector, "settle", lambda row, entry: Verdict.APPLY)
        monkeypatch.setattr(log, "LedgerRow", lambda fence, *_: LedgerRow(fence, None, ""))
        monkeypatch.setattr(SqliteSink, "_advance", lambda *_: None)
    assert cell("a", "told commit *", "SQLite").startswith("ECHO journal: too many")
    assert cell("b", "told commit *", "log").startswith("ECHO log: too many")
    assert cell("c", "told plan *", "SQLite").startswith("LEDGER"), "no sink had it yet"


@pytest.mark.proves("one ledger for all fences")
def test_with_a_ledger_by_fence_rows_come_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each driver has a row of its own then, and what the one before it committed is not in it."""
    assert crashing(folder / "guarded", "told commit *", "SQLite") == ""

    def register(self: Any, uid: str, sink_id: str, fence: int) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT INTO streamwork_ledger (uid, sink, fence) VALUES (?, ?, ?)", (f"{uid}/{fence}", sink_id, fence)
            )
        self._fence = fence

    def commit(self: Any, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        entry = msgspec.structs.replace(entry, uid=f"{entry.uid}/{entry.fence}")
        with self._transaction() as db:
            row = self._row(db, entry.uid, entry.sink)
            first = row is None or row.position is None
            self._carry_out(db, Verdict.APPLY if first else commit_rule.settle(row, entry), entry, staged)

    def ledger(self: Any, uid: str, sink_id: str) -> LedgerRow | None:
        with self._transaction() as db:  # before it has registered: as if it had, and had never written
            return self._row(db, f"{uid}/{getattr(self, '_fence', 0)}", sink_id) or LedgerRow(0, None, "")

    for name, method in (("register", register), ("commit", commit), ("ledger", ledger)):
        monkeypatch.setattr(SqliteSink, name, method)
    assert crashing(folder / "a", "told commit *", "SQLite").startswith("ECHO journal: too many")


@pytest.mark.proves("the fence")
def test_without_fences_a_driver_that_wakes_up_does_harm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = commit_rule.judge
    unfenced = lambda row, entry: real(row, msgspec.structs.replace(entry, fence=row.fence))  # noqa: E731
    monkeypatch.setattr(commit_rule, "judge", unfenced)
    monkeypatch.setattr(Transactions, "check_fence", staticmethod(lambda sink, row, fence: None))
    monkeypatch.setattr(Fences, "check", lambda self, mine: None)

    def attempt() -> None:
        world, life = two_drivers(World(folder, SINKS["SQLite + log"]), "told prepare 3")
        life.survived()
        check(world, MORE)

    assert failure(attempt).startswith(("LEDGER", "LEFT OVER"))


@pytest.mark.proves("rows and ledger in one transaction")
def test_with_rows_and_ledger_in_two_transactions_rows_come_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crashing(folder / "guarded", "rows written to journal", "SQLite") == ""

    def commit(self: Any, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        with self._transaction() as db:
            verdict = commit_rule.settle(self._row(db, entry.uid, entry.sink), entry)
            if verdict is Verdict.APPLY:
                SqliteSink._write(self, db, staged)
        self._world.passes("rows written to journal")
        with self._transaction() as db:
            self._advance(db, entry, entry.end if verdict is Verdict.APPLY else None)

    monkeypatch.setattr(SqliteSink, "commit", commit)
    assert crashing(folder / "a", "rows written to journal", "SQLite").startswith("ECHO journal: too many")


@pytest.mark.proves("outputs that a sink lacks are committed again")
def test_a_sink_behind_that_is_not_offered_what_it_lacks_has_gaps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt(name: str) -> None:
        world = World(folder / name, SINKS["SQLite + log"])
        behind(world, 2)
        world.live(EVENTS).survived()
        check(world, EVENTS)

    assert failure(lambda: attempt("guarded")) == ""
    real = recovery.choose
    monkeypatch.setattr(recovery, "choose", lambda *found: replace(real(*found), offers=()))
    assert failure(lambda: attempt("a")).startswith("ECHO log: too many Counter(), missing")


@pytest.mark.proves("plans that do not span the position of a sink")
def test_with_plans_that_reach_across_a_sink_the_job_is_stuck(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert catching_up(folder / "guarded", SLICE - 1) == ""
    monkeypatch.setattr(Route, "leg", lambda self, at: None)
    assert catching_up(folder / "capped", SLICE - 1) == ""
    monkeypatch.setattr(Route, "capped", lambda self, start, end: end)
    assert catching_up(folder / "a", SLICE - 1).startswith("SW-SINK-LEDGER")


def test_with_the_newest_checkpoint_only_a_lost_manifest_is_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "kept", lambda line, retain, pinned=None: list(line[:1]))
    assert catching_up(folder).startswith("SW-CHECKPOINT-NONE")


@pytest.mark.proves("prepared manifests")
def test_random_results_diverge_where_a_prepared_manifest_is_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crashing(folder / "guarded", "told commit *", operator="draws") == ""
    real = Store.stored
    monkeypatch.setattr(Store, "stored", lambda self: [stored for stored in real(self) if stored.completed])
    assert crashing(folder / "a", "told commit *", operator="draws").startswith("SW-STATE-DIVERGES")
    monkeypatch.setattr(recovery.Recovery, "_not_replayable", lambda self, at, position: "")
    assert crashing(folder / "b", "told commit *", operator="draws").startswith("AGREEMENT")


def _sql(statement: str) -> Callable[[World], None]:
    def tamper(world: World) -> None:
        with closing(sqlite3.connect(world.database)) as db, db:
            db.execute(statement)

    return tamper


def _miscount(world: World) -> None:
    for manifest in world.manifests.values():
        if manifest["epoch"] == 2:
            manifest["counters"]["sums"]["processed"] += 1


def _rewrite_state(world: World) -> None:
    path = world.home / world.newest()[0]["components"]["sums"]["0"][-1]["path"]
    old = pq.read_table(path)
    pq.write_table(old.set_column(2, "total", pa.compute.add(old["total"], 1)), path)


TAMPERING = [
    ("a row twice", _sql("INSERT INTO journal SELECT * FROM journal LIMIT 1"), "ECHO journal: too many"),
    ("a row less", _sql("DELETE FROM journal WHERE rowid = 7"), "ECHO journal: too many Counter[(][)], missing"),
    ("a wrong sum", _sql("UPDATE journal SET total = total + 1 WHERE rowid = 7"), "ECHO journal"),
    ("another order", _sql("UPDATE journal SET rowid = 1000 WHERE rowid = 1"), "SEQUENCE journal"),
    ("a ledger of another manifest", _sql("UPDATE streamwork_ledger SET manifest_sha256 = 'x'"), "LEDGER journal"),
    ("a ledger elsewhere", _sql("UPDATE streamwork_ledger SET position = '{}'"), "LEDGER journal"),
    ("a wrong record", _rewrite_state, "STATE"),
    ("a wrong count", _miscount, "CLOSED sums, epoch 2"),
    ("a file too many", lambda world: (world.home / "outputs/journal/9.arrow").touch(), "LEFT OVER: .'outputs"),
    ("a manifest too many", lambda world: damage_number(world), "LEFT OVER: prepared"),
]


def damage_number(world: World) -> None:
    shutil.copy(world.copies(8)["prepared"], world.copies(2)["prepared"])


@pytest.mark.parametrize(("tamper", "complaint"), cases(TAMPERING))
def test_every_checker_can_fail(folder: Path, tamper: Callable[[World], None], complaint: str) -> None:
    world = World(folder)
    world.live(EVENTS).survived()
    check(world, EVENTS)
    tamper(world)
    with pytest.raises(AssertionError, match=complaint):
        check(world, EVENTS)
