"""``history.sqlite``: how long the steps of each epoch took, and which epochs came to nothing.

It is information for people, never needed for correctness. So it is not synced, and whatever is wrong with it, the job goes on:
a file that is damaged is set aside and a fresh one begun; where even that fails, nothing more is recorded.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

import msgspec

KEEP = 10_000
"""So many epochs are kept."""
TRIM_EVERY = 100
BUSY_SECONDS = 0.1
"""How long to wait for a reader that is in the way; then the row is left out."""

MOST_TOLD = 5
"""Whatever is wrong with a history, it is not worth a line for each epoch."""

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}  # the last: other tables than ours
_STEPS = ("plan", "compute", "prepare", "commit", "complete", "prune")
_COLUMNS = ("epoch", "fence", "outcome", "started", *_STEPS, "events", "note")
_CREATE = f"""CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER, fence INTEGER, outcome TEXT, started REAL,
    {", ".join(f'"{step}" REAL' for step in _STEPS)}, events INTEGER, note TEXT, PRIMARY KEY (epoch, fence, outcome))"""
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)


class Result(Enum):
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    ROLLED_FORWARD = "rolled-forward"


class Seconds(msgspec.Struct, frozen=True, kw_only=True):
    """How long each step took; None for a step that was not reached."""

    plan: float | None = None
    compute: float | None = None
    prepare: float | None = None
    commit: float | None = None
    complete: float | None = None
    prune: float | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one epoch."""

    epoch: int
    fence: int
    outcome: Result
    started: float  # seconds since 1970
    seconds: Seconds = Seconds()
    events: int = 0
    note: str = ""


class Recorder(Protocol):
    def record(self, row: Row) -> None:
        """Take note of an epoch. Never raises."""

    def close(self) -> None: ...


class NoHistory:
    """Records nothing: for simulations."""

    def record(self, row: Row) -> None: ...

    def close(self) -> None: ...


class History:
    def __init__(self, path: Path, keep: int = KEEP, tell: Callable[[str], None] = lambda line: None) -> None:
        """The file is made at the first row; the folder must be there by then. `tell` gets what goes wrong, for people."""
        self._tell = tell
        self._told = 0
        self._path = path
        self._keep = keep
        self._db: sqlite3.Connection | None = None
        self._recorded = 0

    def record(self, row: Row) -> None:
        try:
            self._write(row)
        except sqlite3.Error as error:
            if error.sqlite_errorcode not in _DAMAGE:  # locked, no room, no folder: the file itself may be good
                self._leave_out(row, error)
                return
            self._begin_anew(error)
            try:
                self._write(row)
            except sqlite3.Error as again:
                self._leave_out(row, again)

    def close(self) -> None:
        self._let_go()

    def _write(self, row: Row) -> None:
        if self._db is None:
            self._db = _open(self._path)
        values = (
            row.epoch,
            row.fence,
            row.outcome.value,
            row.started,
            *(getattr(row.seconds, step) for step in _STEPS),
            row.events,
            row.note,
        )
        with self._db:
            marks = ", ".join("?" * len(_COLUMNS))
            self._db.execute(f"INSERT OR REPLACE INTO epochs ({_NAMES}) VALUES ({marks})", values)
            if self._recorded % TRIM_EVERY == 0:
                self._db.execute("DELETE FROM epochs WHERE epoch <= (SELECT max(epoch) FROM epochs) - ?", (self._keep,))
        self._recorded += 1

    def _begin_anew(self, error: Exception) -> None:
        """Set the damaged file aside, under a name that is free."""
        self._let_go()
        names = (self._path.with_name(f"{self._path.name}.damaged-{number}") for number in range(1, 1000))
        with contextlib.suppress(OSError, StopIteration):
            aside = next(name for name in names if not name.exists())
            self._path.replace(aside)
            self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)  # it belongs to the old file
            self._trouble(f"{self._path} was damaged ({error}) and is now {aside.name}; a fresh one was begun")

    def _leave_out(self, row: Row, error: Exception) -> None:
        self._trouble(f"{self._path}: epoch {row.epoch} is not in it: {error}")
        self._let_go()

    def _let_go(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _trouble(self, what: str) -> None:
        self._told += 1
        if self._told <= MOST_TOLD:
            self._tell(what)


def rows(path: Path, last: int) -> Sequence[Row]:
    """The newest rows, newest first; none if there is no history, or none that can be read. Changes nothing."""
    if not path.exists():
        return []
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            newest = "ORDER BY epoch DESC, fence DESC, rowid DESC LIMIT ?"
            found = db.execute(f"SELECT {_NAMES} FROM epochs {newest}", (last,)).fetchall()
        return [_row(dict(zip(_COLUMNS, values, strict=True))) for values in found]
    except (sqlite3.Error, msgspec.ValidationError):
        return []


def _row(values: dict[str, object]) -> Row:
    return msgspec.convert({**values, "seconds": {step: values[step] for step in _STEPS}}, Row)


def _open(path: Path) -> sqlite3.Connection:
    # The driver is closed by whichever thread ends it.
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    try:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute(_CREATE)
    except BaseException:
        db.close()
        raise
    return db
