"""SQLite as a sink. Rows and ledger change in one transaction."""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Event, LedgerEntry, LedgerRow, Located, RowsRejected
from streamwork.components.commit_rule import settle
from streamwork.components.expression import Expression
from streamwork.connectors.pieces import newest
from streamwork.connectors.sql_commits import Commit
from streamwork.connectors.sql_sink import LOCK_SECONDS, Names, SqlSink
from streamwork.connectors.text import with_text
from streamwork.errors import JobFailed, WrongUse

E = TypeVar("E", bound=Event)


class SqliteSink(Located, SqlSink[E], Generic[E]):
    """Writes events to a table, which it creates if it does not exist. With `key` a row replaces the row of the same key; without,
    rows are appended. `delete` is a condition on fields: an event for which it is true removes the row of its key.

    Types: text TEXT, whole numbers INTEGER, floats REAL, bytes BLOB; datetimes and dates are ISO text in UTC, Decimals
    plain text; lists, dicts and nested events are JSON text.

    Any number of processes may write. Each waits up to `LOCK_SECONDS` for the lock of the database.
    """

    reserved = ("streamwork_", "sqlite_")
    numbered = "INTEGER PRIMARY KEY AUTOINCREMENT"

    def __init__(
        self,
        path: str | Path,
        table: str,
        key: str | Iterable[str] | None = None,
        *,
        delete: Expression | None = None,
    ) -> None:
        super().__init__(table, key, delete)
        self.path = Path(path)
        self._connection: sqlite3.Connection | None = None

    def check_target(self, uid: str, sink_id: str) -> None:
        if self.path.exists():  # connecting would create it
            super().check_target(uid, sink_id)

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        return super().ledger(uid, sink_id) if self.path.exists() else None

    def with_target(self, target: str) -> SqliteSink[E]:
        """PATH of a database; the table has the same name there."""
        moved = copy.copy(self)
        moved.path, moved._connection = Path(target), None
        return moved

    def used(self) -> str:
        return super().used() if self.path.exists() else ""

    def open(self, event: type[E]) -> None:
        if not self.path.parent.is_dir():
            raise WrongUse(
                "SW-SINK-PATH", f"the folder of {self.path} does not exist", "create it, or correct the path in the job"
            )
        super().open(event)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}  # each process opens its own connection

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        with self._transaction() as db:
            self._carry_out(db, settle(self._row(db, entry.uid, entry.sink), entry), entry, staged)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, db: sqlite3.Connection, staged: Iterator[pa.RecordBatch]) -> None:
        for batch in newest(staged, self._key) if self._key else staged:
            if self._deletes:
                self._change(db, batch)
            else:
                self._insert(db, self.table, batch.schema.names, self._rows(batch), self._or_update)

    @property
    def _or_update(self) -> str:
        """The clause that makes INSERT replace the row of the same key, and no other: INSERT OR REPLACE would also remove rows of
        other keys that conflict in another unique index. It sets the key, too: different spellings may be equal in the table.
        """
        if not self._key:
            return ""
        change = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in self._schema.names)
        return f" ON CONFLICT ({_quoted(self._key)}) DO UPDATE SET {change}"

    def _change(self, db: sqlite3.Connection, batch: pa.RecordBatch) -> None:
        """Replace and delete in the order of the rows: keys that differ here may be equal in an existing table (NOCASE)."""
        names = batch.schema.names
        places = [names.index(name) for name in self._key]
        delete = f"DELETE FROM {_quoted(self.table)} WHERE {' AND '.join(f'{_quoted(name)} = ?' for name in self._key)}"
        marked = zip(self._deletes.mask(batch).to_pylist(), self._rows(batch), strict=True)
        for deleted, run in groupby(marked, itemgetter(0)):
            if deleted:
                with _rejecting():
                    db.executemany(delete, (tuple(row[place] for place in places) for _, row in run))
            else:
                self._insert(db, self.table, names, (row for _, row in run), self._or_update)

    def _stamp(self, db: sqlite3.Connection) -> int | None:
        """The largest number of a row. A table without numbers (WITHOUT ROWID) has none."""
        if (number := self._row_number(db)) is None:
            return None
        return db.execute(f"SELECT max({number}) FROM {_quoted(self.table)}").fetchone()[0] or 0

    def _since(self, db: sqlite3.Connection, at: Commit, later: Sequence[Commit]) -> tuple[str, tuple[Any, ...]]:
        return f"{self._row_number(db)} > ?", (at.stamp,)

    def _row_number(self, db: sqlite3.Connection) -> str | None:
        """The name for the number of a row that no column has taken; None if rows have no number."""
        taken = {name.lower() for name in self._columns_of(db, self.table)}
        for name in {"rowid", "_rowid_", "oid"} - taken:
            with suppress(sqlite3.OperationalError):
                db.execute(f"SELECT {name} FROM {_quoted(self.table)} LIMIT 0")
                return name
        return None

    def _add(self, db: sqlite3.Connection, table: str, batch: pa.RecordBatch) -> None:
        self._insert(db, table, batch.schema.names, self._rows(batch))

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """The values of each row. SQLite stores NaN as NULL, so NaN is rejected unless the field may be None."""
        for field in self._schema:
            strict = pa.types.is_floating(field.type) and not field.nullable
            if strict and pc.any(pc.is_nan(batch.column(field.name))).as_py():
                raise RowsRejected(
                    f"{field.name} is NaN, which SQLite stores as NULL, and is not declared as float | None"
                )
        return zip(*(with_text(column) for column in batch.columns), strict=True)

    @staticmethod
    def _insert(
        db: sqlite3.Connection, table: str, names: Sequence[str], rows: Iterable[tuple[Any, ...]], more: str = ""
    ) -> None:
        marks = ", ".join("?" * len(names))
        with _rejecting():
            db.executemany(f"INSERT INTO {_quoted(table)} ({_quoted(names)}) VALUES ({marks}){more}", rows)

    def _execute(
        self, db: sqlite3.Connection, statement: str, values: Sequence[Any] = (), **names: Names
    ) -> sqlite3.Cursor:
        return db.execute(statement.format(**{name: _quoted(given) for name, given in names.items()}), values)

    def _exists(self, db: sqlite3.Connection, name: str) -> bool:
        asked = "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) = lower(?)"
        return db.execute(asked, (name,)).fetchone() is not None

    def _misfit(self, db: sqlite3.Connection) -> str:
        info = db.execute(f"PRAGMA table_info({_quoted(self.table)})").fetchall()
        found = [row[1] for row in info]
        keyed = [row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]]
        if found == self._schema.names and keyed == list(self._key):
            return ""
        return f"columns {', '.join(found)} (key: {', '.join(keyed) or 'none'})"

    def _columns_of(self, db: sqlite3.Connection, table: str) -> list[str]:
        return [row[1] for row in db.execute(f"PRAGMA table_info({_quoted(table)})")]

    def _sql_type(self, kind: pa.DataType) -> str:
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return "INTEGER"
        if pa.types.is_floating(kind):
            return "REAL"
        return "BLOB" if pa.types.is_binary(kind) else "TEXT"

    @property
    def _where(self) -> str:
        return str(self.path)

    def _known_as(self, name: str) -> str:
        return name.lower()  # names in SQLite are not case-sensitive

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its start, so that no other writer changes what it has read."""
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None)
                self._connection.execute("PRAGMA synchronous = FULL")
            db = self._connection
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise JobFailed(
                "SW-SINK-FAILED",
                f"{self.path}: {type(error).__name__}: {error}",
                "check that no other program locks the database and that the disk has space, and start again: nothing is lost",
            ) from error


@contextmanager
def _rejecting() -> Iterator[None]:
    """Turn errors whose cause is a row into RowsRejected. Other errors of the database pass through."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError) as error:
        raise RowsRejected(f"{type(error).__name__}: {error}") from error


def _quoted(names: Names) -> str:
    given = (names,) if isinstance(names, str) else names
    return ", ".join('"' + name.replace('"', '""') + '"' for name in given)
