"""`ResultTable`, the sink of the job, and `Results`, its readers: the decisions in a SQLite database.

Why not `SqliteSink`: it syncs the disk with every write, which took 4 ms on the machine where this was written. Under
at-most-once a decision need not survive a power failure. Here a write goes to SQLite's write-ahead log without a sync, which took
20 us. A thread of its own copies that log into the database, so that no write waits for the disk.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import msgspec

from streamwork import RowsRejected, Sink, SinkKind

from .decision import Decision

COLUMNS = tuple(field.name for field in msgspec.structs.fields(Decision))
CREATE = """
CREATE TABLE IF NOT EXISTS decisions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- grows: a reader continues behind the last one it has seen
    "transaction" TEXT NOT NULL UNIQUE,
    card TEXT NOT NULL,
    fraud INTEGER NOT NULL,
    score REAL NOT NULL,
    scores TEXT NOT NULL,  -- JSON
    decided_at TEXT NOT NULL
)"""
QUOTED = ", ".join(f'"{name}"' for name in COLUMNS)
INSERT = f"INSERT OR IGNORE INTO decisions ({QUOTED}) VALUES ({', '.join('?' * len(COLUMNS))})"
SELECT = f"SELECT number, {QUOTED} FROM decisions"
BUSY_SECONDS = 5.0
COPY_SECONDS = 0.5


class ResultTable(Sink[Decision]):
    """Writes decisions at once. The first decision about a transaction stands. Readers never block it, nor it them."""

    kind = SinkKind.APPEND

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None
        self._copier: _Copier | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_db": None, "_copier": None}  # each process opens its own connection

    def open(self, event: type[Decision]) -> None:
        if self._db is None:
            self._db = connect(self.path)
            self._copier = _Copier(self.path)

    def write(self, batch: Any) -> None:
        assert self._db is not None
        try:
            with self._db:  # one transaction
                self._db.executemany(INSERT, map(_to_row, batch.to_pylist()))
        except (sqlite3.IntegrityError, sqlite3.DataError) as error:
            raise RowsRejected(str(error)) from error

    def close(self) -> None:
        if self._copier is not None:
            self._copier.stop()
        if self._db is not None:
            self._db.close()
        self._db = self._copier = None


class Results:
    """Reads decisions: those that are new, and the one about a transaction. For one thread."""

    def __init__(self, path: Path) -> None:
        """Starts behind the decisions that are there already."""
        self._db = connect(path)
        self._seen: int = self._db.execute("SELECT coalesce(max(number), 0) FROM decisions").fetchone()[0]

    def new(self) -> list[Decision]:
        """The decisions since the last call."""
        rows = self._db.execute(f"{SELECT} WHERE number > ? ORDER BY number", (self._seen,)).fetchall()
        if rows:
            self._seen = rows[-1][0]
        return [_to_decision(row) for row in rows]

    def find(self, transaction: str) -> Decision | None:
        """The decision about a transaction; None if there is none yet."""
        row = self._db.execute(f'{SELECT} WHERE "transaction" = ?', (transaction,)).fetchone()
        return None if row is None else _to_decision(row)

    def close(self) -> None:
        self._db.close()


def connect(path: Path) -> sqlite3.Connection:
    """A connection that creates the table if it does not exist. Any thread may use it, one at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")  # with WAL: no sync with a write
    db.execute("PRAGMA wal_autocheckpoint = 0")  # the copier does it
    with db:
        db.execute(CREATE)
    return db


class _Copier:
    """Copies the write-ahead log into the database. It waits for the disk, but holds no lock that a writer or a reader needs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="copy decisions", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        db = connect(self._path)
        try:
            while not self._stopped.wait(COPY_SECONDS):
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            db.close()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def _to_row(values: dict[str, Any]) -> tuple[Any, ...]:
    values["scores"] = msgspec.json.encode(dict(values["scores"])).decode()
    values["decided_at"] = values["decided_at"].isoformat()
    return tuple(values[name] for name in COLUMNS)


def _to_decision(row: tuple[Any, ...]) -> Decision:
    values = dict(zip(COLUMNS, row[1:], strict=True))
    values["scores"] = msgspec.json.decode(values["scores"])
    return msgspec.convert({**values, "fraud": bool(values["fraud"])}, Decision)
