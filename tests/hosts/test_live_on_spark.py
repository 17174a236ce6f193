"""Live mode on Spark itself, as an operator runs it: processes, real kills, and a job that moves between the modes under load."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from hosts.test_live import expected
from live_jobs import Order
from streamwork import EventLog
from streamwork.observe.processes import JobProcesses
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.spark]
TESTS = Path(__file__).parents[1]
JOB = """
from live_jobs import Counting, Order
from streamwork import Job, LogSource, SqliteSink

job = Job("moving", checkpoint_every="200ms", parallelism=2)
orders = job.source(LogSource("log", Order), id="orders")
orders.apply(Counting(), key="shop", id="counting").sink(SqliteSink("out.db", "out"), id="out")
"""
AT_ONCE, EVERY = 5, 0.05


class Load:
    """Appends orders all the time, in a thread."""

    def __init__(self, folder: Path) -> None:
        self.sent = 0
        self._log = EventLog.create(folder / "log", Order, key="shop", partitions=2)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(EVERY):
            self._log.append([Order(self.sent + i, f"shop-{(self.sent + i) % 7}") for i in range(AT_ONCE)])
            self.sent += AT_ONCE

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._log.close()


class Runs:
    """Runs of the job, one after the other. None is left at the end."""

    def __init__(self, folder: Path, load: Load) -> None:
        self._folder, self._load = folder, load
        self._said = folder / "said.txt"
        self.process: subprocess.Popen[bytes]

    def start(self, mode: str, *options: str) -> Runs:
        command = [sys.executable, "-m", "streamwork", "run", "job.py", "--mode", mode, "--root", "root", *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
        with self._said.open("ab") as output:
            self.process = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
        return self

    def says(self, text: str) -> Runs:
        wait_for(lambda: text in self._said.read_text(), self.process, self._said)
        return self

    def goes_on(self) -> Runs:
        """Wait until an order is counted that is sent from now on."""
        newest = self._load.sent + AT_ONCE
        wait_for(lambda: len(rows(self._folder)) > newest, self.process, self._said)
        return self

    def ends(self) -> int:
        wait_for(lambda: self.process.poll() is not None, log=self._said)
        return int(self.process.returncode)

    def stops(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        assert self.ends() == 0, self._said.read_text()

    def is_killed(self) -> None:
        kill(self.process)

    def hands_over(self, mode: str) -> Runs:
        """A standby waits, the process is killed, and the standby is what runs from then on."""
        holder = self.process
        try:
            return self.start(mode, "--standby").says(" read\n")
        finally:
            kill(holder)

    def loses_a_worker(self) -> None:
        JobProcesses.of(self.process.pid).tasks[0].kill()


def kill(process: subprocess.Popen[bytes]) -> None:
    """With -9. Returns when the processes below it have ended, too."""
    below = JobProcesses.of(process.pid).below
    process.kill()
    process.wait()
    psutil.wait_procs(below, timeout=60)


@contextlib.contextmanager
def running(folder: Path, load: Load) -> Iterator[Runs]:
    runs = Runs(folder, load)
    try:
        yield runs
    finally:
        runs.is_killed()


def rows(folder: Path) -> list[tuple[str, int, int]]:
    if not (folder / "out.db").exists():
        return []
    with closing(sqlite3.connect(folder / "out.db", timeout=60)) as db:
        try:
            return list(db.execute("SELECT shop, number, nth FROM out ORDER BY number"))
        except sqlite3.OperationalError:
            return []


@pytest.mark.timeout(900)
def test_a_job_moves_to_live_and_back_under_load_while_it_is_killed(tmp_path: Path) -> None:
    """Each order is counted once, whatever process was killed in which mode. Once a standby takes over."""
    (tmp_path / "job.py").write_text(JOB)
    with Load(tmp_path) as load, running(tmp_path, load) as runs:
        runs.start("microbatch").goes_on().is_killed()
        runs.start("live").goes_on()
        runs.loses_a_worker()
        runs.goes_on().hands_over("live")
        runs.goes_on().stops(signal.SIGTERM)
        runs.start("microbatch").goes_on().stops(signal.SIGTERM)
        runs.start("live").goes_on().stops(signal.SIGINT)
    with running(tmp_path, load) as runs:
        assert runs.start("local", "--until-caught-up").ends() == 0
    assert load.sent > 100 and rows(tmp_path) == expected(load.sent)

    with closing(sqlite3.connect(tmp_path / "out.db")) as db, db:  # the control: one row more, or one less
        db.execute("INSERT INTO out SELECT * FROM out LIMIT 1")
    assert rows(tmp_path) != expected(load.sent)
