"""Shared by benchmarks that send events at a fixed rate to a job in processes of its own, and read its table meanwhile.

Open loop: each event carries the time at which it was due, so a job that stands still does not hide it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from streamwork.components import Event
from streamwork.errors import JobFailed
from streamwork.log import EventLog

TABLE = "counted"
"""In `out.db`; its rows have a `number`, and the time at which their event was `due`."""
APPEND_SECONDS = 0.02
LOOK_SECONDS = 0.005
PATIENCE = 180.0


class Use(Event, frozen=True):
    number: int
    card: str
    due: float  # seconds since 1970


class Sender:
    """Appends events at a fixed rate; each carries the time at which it was due."""

    def __init__(self, log: EventLog[Use], cards: int, rate: int) -> None:
        self._log, self._cards, self._rate = log, cards, rate
        self._rng = np.random.default_rng(13)
        self._wanted: str | None = None
        self._chosen: list[int] = []  # numbers of events whose card was chosen
        self.sent = 0
        self.cards: Counter[str] = Counter()

    def send_one(self, card: str) -> int:
        """Let the next event be of this card. Its number, once it is sent."""
        before = len(self._chosen)
        self._wanted = card
        while len(self._chosen) == before:
            time.sleep(LOOK_SECONDS)
        return self._chosen[-1]

    def append(self, count: int, due: list[float] | None = None) -> None:
        cards = [f"c{card}" for card in self._rng.integers(0, self._cards, count)]
        if self._wanted is not None:
            cards[0], self._wanted = self._wanted, None
            self._chosen.append(self.sent)
        times = due or [time.time()] * count
        self._log.append([Use(self.sent + n, cards[n], times[n]) for n in range(count)])
        self.sent += count
        self.cards.update(cards)

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Send in a thread, until the end of the block."""
        ends = threading.Event()
        thread = threading.Thread(target=self._send, args=(ends,), name="bench-send")
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def _send(self, ends: threading.Event) -> None:
        began, before = time.time(), self.sent
        while not ends.wait(APPEND_SECONDS):
            due = int((time.time() - began) * self._rate)
            first = self.sent - before
            if due > first:
                self.append(due - first, [began + n / self._rate for n in range(first, due)])


class Rows:
    """What a reader of the table sees, and when it has first seen it."""

    def __init__(self, folder: Path, job: subprocess.Popen[bytes]) -> None:
        self._folder, self.job = folder, job
        self._seen: list[tuple[float, int]] = []  # (seconds since 1970, rows)

    @property
    def visible(self) -> int:
        return self._seen[-1][1] if self._seen else 0

    def look(self) -> None:
        found, now = _largest(self._folder), time.time()
        if found > self.visible:
            self._seen.append((now, found))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.job.poll() is not None or time.monotonic() > deadline:
                raise failed(self._folder, f"{what} did not come")
            time.sleep(LOOK_SECONDS)
            self.look()

    def since(self, began: float) -> int:
        """How many of the events that were due from then on are visible."""
        with reading(self._folder) as db:
            return int(db.execute(f"SELECT count(*) FROM {TABLE} WHERE due >= ?", (began,)).fetchone()[0])

    @property
    def changed(self) -> float:
        """When the newest rows were seen, in seconds since 1970."""
        return self._seen[-1][0] if self._seen else 0.0

    def latencies(self, began: float) -> Any:
        """Milliseconds, of the visible rows whose events were due from then on."""
        return np.array([late for _, late in self._rows(began)])

    def by_number(self, began: float) -> dict[int, float]:
        """The same by the number of the event; of its first row."""
        found: dict[int, float] = {}
        for number, late in self._rows(began):
            found.setdefault(number, late)
        return found

    def _rows(self, began: float) -> Iterator[tuple[int, float]]:
        with reading(self._folder) as db:
            found = db.execute(
                f"SELECT rowid, number, due FROM {TABLE} WHERE due >= ? AND rowid <= ? ORDER BY rowid",
                (began, self.visible),
            ).fetchall()
        counts = [rows for _, rows in self._seen]
        for row, number, due in found:
            yield number, (self._seen[bisect_left(counts, row)][0] - due) * 1000


@contextlib.contextmanager
def started(folder: Path, mode: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "streamwork", "run", "job.py", "--mode", mode, "--master", "local[2]"]
    command += ["--root", str(folder / "root"), *more]
    """Run `job.py` of a folder by the command line. At the end it is killed, with all processes below it."""
    with (folder / "job.txt").open("ab") as output:
        job = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield job
    finally:
        kill(job)


def kill(job: subprocess.Popen[bytes]) -> None:
    """Kill the driver and all processes below it."""
    if job.poll() is not None:
        return
    below = psutil.Process(job.pid).children(recursive=True)
    job.kill()
    for process in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    job.wait()
    psutil.wait_procs(below, timeout=PATIENCE)


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"{(folder / 'out.db').as_uri()}?mode=ro", uri=True, timeout=60)) as db:
        yield db


def _largest(folder: Path) -> int:
    """How many rows are visible."""
    if not (folder / "out.db").exists():
        return 0
    with reading(folder) as db:
        try:
            return int(db.execute(f"SELECT max(rowid) FROM {TABLE}").fetchone()[0] or 0)
        except sqlite3.OperationalError:  # there is no table yet
            return 0


def failed(folder: Path, what: str) -> JobFailed:
    said = (folder / "job.txt").read_text(errors="replace").splitlines()[-5:]
    return JobFailed(
        "SW-BENCH-FAILED",
        f"{what}; the job printed: {' | '.join(said)}",
        "run the benchmark again on a machine that does nothing else",
    )
