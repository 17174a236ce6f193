"""A crash after any step of any epoch, again and again: the sinks end with every row once, the state with the right sums."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crashes import Crash, CrashAt
from sample import Payment, expected_journal, payments, run_job, summing_job
from streamwork import Refused, SqliteSink
from streamwork.components import LedgerEntry
from streamwork.epoch import Phase
from tiers import quick_every

EVENTS = payments(60)


class NoLedger(SqliteSink[Any]):
    """The negative control: a sink that applies whatever it is offered, and remembers nothing."""

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        with self._transaction() as db:
            self._write(db, staged)


def survive(folder: Path, crashes: list[int], max_events: int, sink: type[SqliteSink[Any]] = SqliteSink) -> None:
    database = folder / "out.db"
    for steps in [*crashes, 10**9]:
        try:
            run_job(summing_job(EVENTS, database, max_events, sink), folder / "root", watcher=CrashAt(steps))
        except Crash:
            continue
    check(database, EVENTS)


def check(database: Path, events: list[Payment]) -> None:
    journal = expected_journal(events)
    with closing(sqlite3.connect(database)) as db:
        assert sorted(db.execute("SELECT card, number, total FROM journal")) == sorted(journal)
        assert dict(db.execute("SELECT card, total FROM latest")) == {card: total for card, _, total in journal}


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(crashes=st.lists(st.integers(0, 30), max_size=6), max_events=st.integers(3, 25))
def test_every_row_once_after_any_crashes(
    tmp_path_factory: pytest.TempPathFactory, crashes: list[int], max_events: int
) -> None:
    survive(tmp_path_factory.mktemp("life"), crashes, max_events)


@pytest.mark.parametrize("steps", quick_every(3, range(5 + 2 * 8)))
def test_after_each_step_of_the_start_and_of_the_first_two_epochs(tmp_path: Path, steps: int) -> None:
    survive(tmp_path, [steps], max_events=20)


def test_without_the_ledger_the_checker_notices(tmp_path: Path) -> None:
    def breaks(steps: int) -> bool:
        folder = tmp_path / str(steps)
        folder.mkdir()
        try:
            survive(folder, [steps], max_events=20, sink=NoLedger)
        except AssertionError:
            return True
        return False

    # told of: register, register, read, ready, prune; plan, compute, report, prepare, commit, commit, complete, prune
    assert not breaks(8), "prepared, and no sink has it"
    assert all(breaks(steps) for steps in range(9, 13)), "a sink has it"


def test_a_prepared_epoch_is_rolled_forward_and_not_computed_again(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run_job(summing_job(EVENTS, tmp_path / "out.db", 20), tmp_path / "root", watcher=CrashAt(0, Phase.PREPARE))
    outputs = tmp_path / "root" / "summing" / "outputs" / "journal"
    before = sorted(path.name for path in outputs.iterdir())
    outcome = run_job(summing_job(EVENTS[:20], tmp_path / "out.db", 20), tmp_path / "root")
    assert outcome.started == "resumed at checkpoint 1"
    assert sorted(path.name for path in outputs.iterdir()) == before
    check(tmp_path / "out.db", EVENTS[:20])


def test_epoch_numbers_are_never_used_again(tmp_path: Path) -> None:
    for _ in range(3):
        with pytest.raises(Crash):
            run_job(summing_job(EVENTS, tmp_path / "out.db", 20), tmp_path / "root", watcher=CrashAt(0, Phase.PLAN))
    run_job(summing_job(EVENTS, tmp_path / "out.db", 20), tmp_path / "root")
    names = sorted(p.name for p in (tmp_path / "root" / "summing" / "checkpoints").glob("*.json"))
    completed = [int(name.split(".")[0]) for name in names if name.count(".") == 1]
    assert completed == [0, 4, 5, 6]
    check(tmp_path / "out.db", EVENTS)


def test_a_number_that_somebody_else_has_prepared_is_given_up(tmp_path: Path) -> None:
    """What was computed under it counts for nothing, also where the host still holds the state."""

    class Meanwhile(CrashAt):
        def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
            if (step, epoch) == (Phase.REPORT, 2):
                folder = tmp_path / "root" / "summing" / "checkpoints"
                (folder / "000000000002.prepared.json").write_text("another driver's")

    run_job(summing_job(EVENTS, tmp_path / "out.db", 20), tmp_path / "root", watcher=Meanwhile(0))
    check(tmp_path / "out.db", EVENTS)


def test_a_sink_whose_database_is_gone_is_refused(tmp_path: Path) -> None:
    run_job(summing_job(EVENTS[:50], tmp_path / "out.db", 5), tmp_path / "root")
    (tmp_path / "out.db").unlink()
    with pytest.raises(Refused, match="SW-SINK-LOST"):
        run_job(summing_job(EVENTS, tmp_path / "out.db"), tmp_path / "root")


def test_a_sink_whose_database_is_gone_is_filled_again_where_that_is_asked_for(tmp_path: Path) -> None:
    run_job(summing_job(EVENTS[:20], tmp_path / "out.db"), tmp_path / "root")
    (tmp_path / "out.db").unlink()
    run_job(summing_job(EVENTS, tmp_path / "out.db"), tmp_path / "root", refill=("journal", "latest"))
    check(tmp_path / "out.db", EVENTS)


def test_a_new_root_over_an_old_target_is_refused(tmp_path: Path) -> None:
    run_job(summing_job(EVENTS[:20], tmp_path / "out.db"), tmp_path / "root")
    with pytest.raises(Refused, match="SW-SINK-OWNED"):
        run_job(summing_job(EVENTS, tmp_path / "out.db"), tmp_path / "another")
