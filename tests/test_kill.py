"""kill -9, for real, at seeded random times, and a recompute in DuckDB that must agree with the sink to the last row."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from streamwork.cli.demo import write_transactions

HERE = Path(__file__).parent
EVENTS = 200_000
"""Enough for several kills."""
DOUBLED = (
    "SELECT count(*) FROM (SELECT card, transactions FROM journal GROUP BY card, transactions HAVING count(*) > 1)"
)
SEED = int(os.environ.get("STREAMWORK_KILL_SEED", random.SystemRandom().randrange(10**6)))


class Life:
    """One life of the driver, ended by kill -9 or by having done everything."""

    def __init__(self, folder: Path, mode: str, ledger: str, pace: str = "stretched") -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "examples")])}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "kill_job.py"), str(folder), mode, ledger, pace],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def wait_until_working(self) -> None:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 120)
        line = self._process.stdout.readline() if ready else "nothing for two minutes"
        assert line.strip() == "working", f"{line!r}: {self._process.communicate()[1] if ready else ''}"

    def kill_after(self, seconds: float) -> bool:
        """True if it was still alive."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
            return True
        out, errors = self._process.communicate()
        assert "done" in out, errors
        return False


def survive(folder: Path, mode: str, ledger: str, kills: int) -> None:
    """Let the job be killed `kills` times, checking after each; then let it finish, and compare with a recompute."""
    rng = random.Random(f"{SEED}/{mode}")
    write_transactions(folder / "transactions.jsonl", EVENTS if kills > 1 else EVENTS // 4)
    killed = 0
    while killed < kills:
        life = Life(folder, mode, ledger)
        if rng.random() < 0.3:  # while it starts and recovers
            alive = life.kill_after(rng.uniform(0.1, 6.0 if mode == "microbatch" else 0.6))
        else:
            life.wait_until_working()
            alive = life.kill_after(rng.uniform(0.0, 1.0))
        assert alive, "it finished before it could be killed often enough: give it more events"
        killed += 1
        if (folder / "usage.db").exists():
            check_so_far(folder)
    assert not Life(folder, mode, ledger, pace="plain").kill_after(180), "it did not finish"
    check(folder)


def check_so_far(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "usage.db")) as db:
        if db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'journal'").fetchone() == (1,):
            assert db.execute(DOUBLED).fetchone() == (0,), "rows are doubled"


def check(folder: Path) -> None:
    recomputed = duckdb.sql(
        f"SELECT card, count(*), sum(amount) FROM read_json('{folder}/transactions.jsonl') GROUP BY card ORDER BY card"
    ).fetchall()
    check_so_far(folder)
    with closing(sqlite3.connect(folder / "usage.db")) as db:
        assert db.execute("SELECT card, transactions, total FROM usage ORDER BY card").fetchall() == recomputed
        assert (
            db.execute("SELECT card, count(*), max(total) FROM journal GROUP BY card ORDER BY card").fetchall()
            == recomputed
        )


def replay() -> str:
    return f"replay with: STREAMWORK_KILL_SEED={SEED} .venv/bin/python -m pytest tests/test_kill.py"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        ("local", 1),
        pytest.param("local", 8, marks=pytest.mark.slow),
        pytest.param("microbatch", 10, marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def test_nothing_is_lost_or_doubled_when_the_driver_is_killed(tmp_path: Path, mode: str, kills: int) -> None:
    began = time.monotonic()
    print(replay())
    survive(tmp_path, mode, "ledger", kills)
    print(f"{kills} kills in {time.monotonic() - began:.0f} s")


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "kills"), [("local", 8), pytest.param("microbatch", 10, marks=pytest.mark.spark)])
def test_with_the_ledger_in_another_transaction_the_same_test_fails(tmp_path: Path, mode: str, kills: int) -> None:
    print(replay())
    with pytest.raises(AssertionError, match="rows are doubled"):
        survive(tmp_path, mode, "split-ledger", kills)
