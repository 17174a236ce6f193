"""``history.sqlite``: how long the phases of each epoch took, which epochs were abandoned, and what was counted in all of them.
`epoch.history.tables` describes its tables.

A history is information only: nothing depends on it. It is not synced. A damaged file is moved aside and a new one is created;
if that fails too, the row is left out and the job goes on.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.delivery.counts import KINDS, Counts
from streamwork.epoch.history.durations import add_durations
from streamwork.epoch.history.lag import InputEnd, Sample
from streamwork.epoch.history.tables import ENDS, NAMES, SAMPLES, STATES, STEPS, marks, open_history
from streamwork.epoch.history.values import Result, Row, StateSize
from streamwork.epoch.in_doubt import InDoubt

T = TypeVar("T")
KEEP = 10_000
"""How many epochs are kept."""
KEEP_COUNTS = 1_000
"""Of how many epochs the counts of every instance are kept."""
KEEP_SAMPLES = 7_200.0
"""Of how many seconds samples of the input are kept."""
KEEP_ALL_SAMPLES = 1_200.0
COARSE_SECONDS = 10
"""Of samples that are older than this, the first of every ten seconds is kept: a reader reads all of them."""
THINNED_AGAIN = 600.0
"""How far back samples are thinned again: a job that was idle, or at rest, has thinned nothing meanwhile."""
KEEP_STATES = 86_400.0
"""Of how many seconds the sizes of the states are kept."""
TRIM_EVERY = 100
MOST_WARNINGS = 5
"""Maximum warnings per run."""

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}  # the last: other tables than ours
_KIND_NAMES, _SUMS = ", ".join(KINDS), ", ".join(f"{kind} = {kind} + excluded.{kind}" for kind in KINDS)


class History:
    def __init__(self, path: Path, keep: int = KEEP, warn: Callable[[str], None] = lambda line: None) -> None:
        """The file is created with the first row; the folder must exist by then. `warn` gets a line for each problem."""
        self._warn = warn
        self._warned = 0
        self._path = path
        self._keep = keep
        self._db: sqlite3.Connection | None = None
        self._recorded = 0

    def record(
        self, row: Row, counts: Sequence[Counts] = (), wasted: Sequence[Counts] = (), once: bool = False
    ) -> None:
        self._attempt(lambda db: self._write(db, row, counts, wasted, once), f"epoch {row.epoch}")

    def doubt(self, found: Sequence[InDoubt]) -> Sequence[InDoubt]:
        news = self._attempt(lambda db: _doubt(db, found), "what is in doubt")
        return found if news is None else news  # reported twice rather than never

    def input_ends(self, ends: Sequence[InputEnd], samples: Sequence[Sample] = ()) -> None:
        self._attempt(lambda db: _write_ends(db, ends, samples), "where input ends")

    def state_sizes(self, sizes: Sequence[StateSize]) -> None:
        self._attempt(lambda db: _write_sizes(db, sizes), "how large the states are")

    def back_to(self, epoch: int) -> None:
        try:
            if self._db is None and self._path.exists():
                self._db = open_history(self._path)
            if self._db is not None:
                with self._db:
                    for row in _committed_beyond(self._db, epoch):
                        _abandon(self._db, *row)
        except sqlite3.Error:  # some are counted twice then; if the file is damaged, the next row replaces it
            self._disconnect()

    def close(self) -> None:
        self._disconnect()

    def _attempt(self, write: Callable[[sqlite3.Connection], T], what: str) -> T | None:
        """What `write` returns; None if it cannot be done."""
        try:
            return write(self._opened())
        except sqlite3.Error as error:
            if error.sqlite_errorcode not in _DAMAGE:  # locked, disk full, no folder: the file itself may be good
                self._leave_out(what, error)
                return None
            self._replace_damaged(error)
            try:
                return write(self._opened())
            except sqlite3.Error as again:
                self._leave_out(what, again)
                return None

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = open_history(self._path)
        return self._db

    def _write(
        self, db: sqlite3.Connection, row: Row, counts: Sequence[Counts], wasted: Sequence[Counts], once: bool
    ) -> None:
        if once and _is_committed(db, row.epoch, row.fence):
            return
        seconds = [getattr(row.seconds, step) for step in STEPS]
        values = (row.epoch, row.fence, row.outcome.value, row.started, *seconds, row.events, row.note)
        counted = [*_values(row.outcome, counts), *_values(Result.ABANDONED, wasted)]
        with db:
            db.execute(f"INSERT OR REPLACE INTO epochs ({NAMES}) VALUES ({marks(values)})", values)
            _add(db, "counts", "epoch, fence, outcome, component, instance", [(*values[:2], *c) for c in counted])
            _add(db, "totals", "outcome, component, instance", counted)
            _add_outcome(db, row.outcome.value, 1, [value or 0.0 for value in seconds])
            if row.outcome.committed:
                add_durations(db, row)
            if self._recorded % TRIM_EVERY == 0:
                for table, keep in (("epochs", self._keep), ("counts", min(self._keep, KEEP_COUNTS))):
                    db.execute(f"DELETE FROM {table} WHERE epoch <= (SELECT max(epoch) FROM epochs) - ?", (keep,))
        self._recorded += 1

    def _replace_damaged(self, error: Exception) -> None:
        """Move the damaged file aside, under a free name."""
        self._disconnect()
        names = (self._path.with_name(f"{self._path.name}.damaged-{number}") for number in range(1, 1000))
        with contextlib.suppress(OSError, StopIteration):
            aside = next(name for name in names if not name.exists())
            self._path.replace(aside)
            self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)  # it belongs to the old file
            self._trouble(f"{self._path} was damaged ({error}) and is now {aside.name}; a new one was created")

    def _leave_out(self, what: str, error: Exception) -> None:
        self._trouble(f"{self._path}: {what} is not in it: {error}")
        self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _trouble(self, what: str) -> None:
        self._warned += 1
        if self._warned <= MOST_WARNINGS:
            self._warn(what)


def _values(outcome: Result, counts: Iterable[Counts]) -> list[tuple[object, ...]]:
    return [(outcome.value, *msgspec.structs.astuple(one)) for one in counts]


def _add(db: sqlite3.Connection, table: str, key: str, rows: Sequence[tuple[object, ...]]) -> None:
    """An epoch that is computed several times counts every time."""
    if rows:
        insert = (
            f"INSERT INTO {table} ({key}, {_KIND_NAMES}) VALUES ({marks(rows[0])}) ON CONFLICT DO UPDATE SET {_SUMS}"
        )
        db.executemany(insert, rows)


def _committed_beyond(db: sqlite3.Connection, epoch: int) -> list[tuple[int, int, str]]:
    done = [one.value for one in Result if one.committed]
    query = f"SELECT epoch, fence, outcome FROM epochs WHERE epoch > ? AND outcome IN ({marks(done)})"
    return db.execute(query, (epoch, *done)).fetchall()


def _add_outcome(db: sqlite3.Connection, outcome: str, epochs: int, seconds: Sequence[float]) -> None:
    more = ", ".join(f'"{name}" = "{name}" + excluded."{name}"' for name in ("epochs", *STEPS))
    insert = f"INSERT INTO outcomes VALUES (?, ?, {marks(seconds)}) ON CONFLICT DO UPDATE SET {more}"
    db.execute(insert, (outcome, epochs, *seconds))


def _abandon(db: sqlite3.Connection, epoch: int, fence: int, outcome: str) -> None:
    """Count a committed epoch as abandoned."""
    abandoned, mine = Result.ABANDONED.value, (epoch, fence, outcome)
    where = "WHERE epoch = ? AND fence = ? AND outcome = ?"
    counted = db.execute(f"SELECT component, instance, {_KIND_NAMES} FROM counts {where}", mine).fetchall()
    db.execute(f"DELETE FROM counts {where}", mine)
    _add(db, "totals", "outcome, component, instance", [(outcome, *c[:2], *(-n for n in c[2:])) for c in counted])
    _add(db, "totals", "outcome, component, instance", [(abandoned, *c) for c in counted])
    _add(db, "counts", "epoch, fence, outcome, component, instance", [(epoch, fence, abandoned, *c) for c in counted])
    steps = ", ".join(f'coalesce("{step}", 0.0)' for step in STEPS)
    seconds = db.execute(f"SELECT {steps} FROM epochs {where}", mine).fetchone()
    _add_outcome(db, outcome, -1, [-value for value in seconds])
    _add_outcome(db, abandoned, 1, seconds)
    db.execute(f"UPDATE OR REPLACE epochs SET outcome = ?, note = 'passed over' {where}", (abandoned, *mine))


def _doubt(db: sqlite3.Connection, found: Sequence[InDoubt]) -> list[InDoubt]:
    open_ones = [one for one in found if not _is_committed(db, one.epoch, one.fence)]
    insert = f"INSERT OR IGNORE INTO in_doubt VALUES ({marks(InDoubt.__struct_fields__)})"
    with db:
        return [one for one in open_ones if db.execute(insert, msgspec.structs.astuple(one)).rowcount]


def _write_ends(db: sqlite3.Connection, ends: Sequence[InputEnd], samples: Sequence[Sample]) -> None:
    with db:
        _replace(db, "ends", ENDS, ends)
        _replace(db, "samples", SAMPLES, samples)
        _trim(db, "samples", KEEP_SAMPLES, samples)
        if samples:
            _thin(db, samples[0].at - KEEP_ALL_SAMPLES)


def _write_sizes(db: sqlite3.Connection, sizes: Sequence[StateSize]) -> None:
    with db:
        _replace(db, "states", STATES, sizes)
        _trim(db, "states", KEEP_STATES, sizes)


def _replace(db: sqlite3.Connection, table: str, names: str, rows: Sequence[msgspec.Struct]) -> None:
    values = [msgspec.structs.astuple(row) for row in rows]
    if values:
        db.executemany(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks(values[0])})", values)


def _trim(db: sqlite3.Connection, table: str, seconds: float, news: Sequence[Sample | StateSize]) -> None:
    if news:
        db.execute(f"DELETE FROM {table} WHERE at < ?", (news[0].at - seconds,))


def _thin(db: sqlite3.Connection, before: float) -> None:
    """Of the samples just before this moment, keep the first of each span. Those before them were thinned earlier."""
    db.execute(
        """DELETE FROM samples WHERE at < ? AND at >= ? AND EXISTS (SELECT 1 FROM samples AS first
        WHERE first.source = samples.source AND first.at < samples.at
        AND first.at >= CAST(samples.at / ? AS INTEGER) * ?)""",
        (before, before - THINNED_AGAIN, COARSE_SECONDS, COARSE_SECONDS),
    )


def _is_committed(db: sqlite3.Connection, epoch: int, fence: int) -> bool:
    known = db.execute("SELECT outcome FROM epochs WHERE epoch = ? AND fence = ?", (epoch, fence)).fetchall()
    return any(Result(outcome).committed for (outcome,) in known if outcome in {one.value for one in Result})
