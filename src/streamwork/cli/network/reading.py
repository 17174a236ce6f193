"""`Snapshot`: what the files of the card network contain at one moment. `Reader` reads them; it changes nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from streamwork.cli.network.schedule import Job
from streamwork.cli.network.system import Places, System
from streamwork.errors import StreamworkError
from streamwork.log import LogReader
from streamwork.observe.status import read_status
from streamwork.world import Clock

ANALYSERS = ("average-ticket", "proximity", "count")
TAIL = 8192
"""Bytes at the end of the progress file that contain its last line."""


class JobView(msgspec.Struct, frozen=True):
    """A job, as `streamwork status` shows it."""

    running: bool = False
    fence: int = 0
    checkpoint: int = 0
    age: float | None = None  # seconds since the checkpoint was completed
    processes: tuple[str, ...] = ()  # the isolated components whose process lives


class Totals(msgspec.Struct, frozen=True):
    """The numbers that system usage has written."""

    transactions: int = 0
    fraudulent: int = 0
    unknown: int = 0


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of the sender's progress: the bank's view of fraud detection."""

    seconds: float
    sent: int
    answers: dict[str, int]
    planted: int
    caught: int
    flagged: int
    missing_scores: dict[str, int]
    latency: dict[str, Any]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    at: float  # seconds on the demo's clock
    jobs: dict[Job, JobView] = {}
    sent: Sent | None = None  # None: no transaction was sent yet
    decisions: int = 0  # the number of the newest decision
    scored: dict[str, int] = {}  # analyser -> the number of the newest decision with its score
    logged: int = 0  # transactions in the log: probes and histories, too
    totals: Totals = Totals()

    def job(self, job: Job) -> JobView:
        return self.jobs.get(job, JobView())

    @property
    def behind(self) -> int:
        """Transactions in the log that system usage has not counted yet."""
        return max(0, self.logged - self.totals.transactions)


class Reader:
    """Reads snapshots. A file that does not exist yet, or that is locked, leaves the last value."""

    def __init__(self, places: Places, clock: Clock) -> None:
        self._places = places
        self._clock = clock
        self._log: LogReader[Any] | None = None
        self._last = Snapshot(at=0.0)

    def read(self, system: System, at: float) -> Snapshot:
        decisions, scored = self._decisions()
        self._last = Snapshot(
            at=at,
            jobs={job: self._job(system, job) for job in Job},
            sent=self._sent(),
            decisions=decisions,
            scored=scored,
            logged=self._logged(),
            totals=self._totals(),
        )
        return self._last

    def _job(self, system: System, job: Job) -> JobView:
        alive = tuple(one.component for one in system.jobs[job].processes().isolated)
        try:
            found = read_status(self._places.root, job.value, self._clock, watch=False)
        except (StreamworkError, OSError, sqlite3.Error):
            return self._last.job(job)
        fence = found.holder.fence if found.holder is not None else 0
        return JobView(bool(found.running), fence, found.checkpoint or 0, found.age_seconds, alive)

    def _sent(self) -> Sent | None:
        try:
            with self._places.progress.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
                lines = file.read().split(b"\n")
        except OSError:
            return self._last.sent
        return msgspec.json.decode(lines[-2], type=Sent) if len(lines) > 1 else self._last.sent

    def _decisions(self) -> tuple[int, dict[str, int]]:
        newest, scored = self._last.decisions, dict(self._last.scored)
        query = "SELECT number, scores FROM decisions WHERE number > ? ORDER BY number"
        for number, scores in rows(self._places.decisions, query, newest):
            newest = number
            scored.update(dict.fromkeys(msgspec.json.decode(scores), number))
        return newest, scored

    def _totals(self) -> Totals:
        query = "SELECT transactions, fraudulent, unknown FROM usage ORDER BY rowid DESC LIMIT 1"
        return next((Totals(*row) for row in rows(self._places.usage, query)), self._last.totals)

    def _logged(self) -> int:
        try:
            if self._log is None:
                self._log = LogReader(self._places.log)
            return sum(self._log.ends().values())
        except (StreamworkError, OSError):
            return self._last.logged


def rows(path: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a SQLite database; none if it, or its table, does not exist or is locked for long."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
            return db.execute(query, values).fetchall()
    except sqlite3.OperationalError:
        return []
