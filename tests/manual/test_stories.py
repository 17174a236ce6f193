"""The system usage job with state by hand: its machine is lost and it goes on elsewhere; its store is lost.

The driver is killed with -9 and its root removed: nothing of the machine is left but what the store has.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from manual.hand_jobs import Payment, PerCard, Total, expected, payments
from streamwork import EventLog, Job, LogSource, SqliteSink
from streamwork.manual import RewindingSource, SqliteStore, by_hand
from waiting import wait_for

HERE = Path(__file__).parent
EVENTS = 6_000


def rows(folder: Path, query: str) -> list[tuple[int, ...]]:
    with contextlib.suppress(sqlite3.OperationalError), closing(sqlite3.connect(folder / "usage.db", timeout=30)) as db:
        return db.execute(query).fetchall()
    return []  # the table is not there yet


@contextlib.contextmanager
def machine(folder: Path, number: int) -> Iterator[subprocess.Popen[bytes]]:
    """A machine with a root of its own, which runs the job until it has caught up, or is lost."""
    root = folder / f"machine-{number}"
    with (folder / f"output-{number}.txt").open("wb") as output:
        command = [sys.executable, "-m", "streamwork", "run", str(HERE / "usage_by_hand.py"), "--mode", "local"]
        process = subprocess.Popen(
            [*command, "--root", str(root), "--until-caught-up"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(HERE.parent), "HAND_FOLDER": str(folder)},
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(root, ignore_errors=True)


def lives(folder: Path, losses: int, loses_store: bool) -> list[Payment]:
    """Run the job on one machine after another. Returns its input."""
    events = payments(EVENTS, seed=losses, cards=20)
    (folder / "store").mkdir()
    with EventLog.create(folder / "log", Payment, key="card", partitions=2) as log:
        log.append(events)
    for number in range(losses):
        goal = (number + 1) * EVENTS // (losses + 1)
        with machine(folder, number) as process:
            wait_for(
                lambda goal=goal: rows(folder, f"SELECT 1 FROM written WHERE number >= {goal} LIMIT 1"),
                process,
                folder / f"output-{number}.txt",
            )
        if loses_store:
            shutil.rmtree(folder / "store")
            (folder / "store").mkdir()
    with machine(folder, losses) as process:
        assert process.wait(240) == 0, (folder / f"output-{losses}.txt").read_text()
    return events


@pytest.mark.slow
@pytest.mark.parametrize("loses_store", [False, True], ids=["machine", "machine-and-store"])
def test_the_job_goes_on_elsewhere(tmp_path: Path, loses_store: bool) -> None:
    events = lives(tmp_path, 2, loses_store)
    with closing(SqliteStore(tmp_path / "store" / "state.db")) as store:
        assert {one.component for one in store.all()} == {"payments", "per-card"}
    wanted = expected(events)
    newest = {total.card: (total.number, total.count, total.total) for total in wanted}
    found = rows(tmp_path, "SELECT card, number, count, total FROM usage")
    assert {row[0]: row[1:] for row in found} == newest
    written = rows(tmp_path, "SELECT card, number, count, total FROM written")
    assert {Total(*row) for row in written} <= set(wanted), "no number is wrong, not even for a moment"
    if loses_store:
        assert len(written) > len(set(written)), "all that was written is written again: going back has its price"


@pytest.mark.usefixtures("gang_of_threads")
def test_in_live_mode(tmp_path: Path) -> None:
    events = payments(300, seed=1)
    with EventLog.create(tmp_path / "log", Payment, key="card", partitions=2) as log:
        log.append(events[:200])
        for more in ([], events[200:]):
            log.append(more)
            store = SqliteStore(tmp_path / "state.db")
            job = Job("live-by-hand", semantics="at-most-once")
            source = RewindingSource(LogSource(tmp_path / "log", Payment), store, rewind=10)
            totals = by_hand(
                job.source(source, id="payments"), PerCard(), key="card", store=store, id="per-card", parallelism=2
            )
            totals.sink(SqliteSink(tmp_path / "usage.db", "usage", key="card"), id="usage")
            job.run(mode="live", root=tmp_path / "root", until_caught_up=True)
    newest = {total.card: (total.number, total.count, total.total) for total in expected(events)}
    found = rows(tmp_path, "SELECT card, number, count, total FROM usage")
    assert {row[0]: row[1:] for row in found} == newest
