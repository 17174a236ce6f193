"""`SqliteStore`: state by hand in an SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamwork.components import Located
from streamwork.manual.sql_store import SqlStore

LOCK_SECONDS = 30.0


class SqliteStore(Located, SqlStore):
    """`path` is the file, relative to the folder of the job file; `job` is a name, for several jobs in one file."""

    mark, blob = "?", "BLOB"

    def __init__(self, path: str | Path, job: str = "job") -> None:
        super().__init__(job)
        self.path = Path(path)
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._connection
        if db is None:
            db = self._connection = sqlite3.connect(
                self.path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False
            )
            db.execute("PRAGMA synchronous = FULL")
            for table in self.tables():
                db.execute(table)
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
