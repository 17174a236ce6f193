"""SQLite as a sink: rows and ledger change in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components import Event, Key, LedgerEntry, LedgerRow, Position, Sink, SinkKind
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.components.sink import RowsRejected, fenced
from streamwork.epoch.commit import Verdict, settle
from streamwork.errors import JobFailed, Refused, WrongUse

E = TypeVar("E", bound=Event)
LOCK_SECONDS = 30.0
_LEDGER = """
CREATE TABLE IF NOT EXISTS streamwork_ledger (
    uid TEXT NOT NULL, sink TEXT NOT NULL, position TEXT, fence INTEGER NOT NULL,
    manifest_sha256 TEXT NOT NULL DEFAULT '', mark TEXT NOT NULL DEFAULT '', PRIMARY KEY (uid, sink))"""
_OWNERS = (
    "CREATE TABLE IF NOT EXISTS streamwork_owners (target TEXT PRIMARY KEY, uid TEXT NOT NULL, sink TEXT NOT NULL)"
)


class SqliteSink(Sink[E], Generic[E]):
    """Writes events to a table, which it creates. With `key` a row replaces the one of the same key; without, rows
    are added.

    Text stays text, whole numbers INTEGER, floats REAL, bytes BLOB; datetimes and dates are ISO text in UTC, Decimals
    plain
    text; lists, dicts and nested events are JSON text.
    """

    kind = SinkKind.TRANSACTIONAL

    def __init__(self, path: str | Path, table: str, key: str | Iterable[str] | None = None) -> None:
        if not table or table.startswith(("streamwork_", "sqlite_")) or "\x00" in table:
            raise WrongUse("SW-SINK-TABLE", f"{table!r} cannot be the name of a table", "choose another name")
        self.path = Path(path).absolute()
        self.table = table
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        self._connection: sqlite3.Connection | None = None

    def open(self, event: type[E]) -> None:
        if self._key:
            Key.of(event, self._key)
            for name in self._key:
                if fields_of(event)[name].nullable:
                    raise WrongUse(
                        "SW-KEY-TYPE",
                        f"{event.__name__}.{name} may be None, and a database cannot tell one None from another",
                        "key by fields that are always there",
                    )
        schema = arrow_schema(event)
        columns = [f"{_quoted(field.name)} {_sql_type(field.type)}".strip() for field in schema]
        if self._key:
            columns.append(f"PRIMARY KEY ({', '.join(map(_quoted, self._key))})")
        if not self.path.parent.is_dir():
            raise WrongUse(
                "SW-SINK-PATH", f"the folder of {self.path} is not there", "create it, or correct the path in the job"
            )
        with self._transaction() as db:
            db.execute(_LEDGER)
            db.execute(_OWNERS)
            db.execute(f"CREATE TABLE IF NOT EXISTS {_quoted(self.table)} ({', '.join(columns)})")
            found = [row[1] for row in db.execute(f"PRAGMA table_info({_quoted(self.table)})")]
            keyed = [
                r[1]
                for r in sorted(db.execute(f"PRAGMA table_info({_quoted(self.table)})"), key=lambda r: r[5])
                if r[5]
            ]
        if found != schema.names or keyed != list(self._key):
            raise Refused(
                "SW-SINK-SCHEMA",
                f"table {self.table} in {self.path} has columns {', '.join(found)} (key: {', '.join(keyed) or 'none'}), "
                f"but {event.__name__} has {', '.join(schema.names)} (key: {', '.join(self._key) or 'none'})",
                "write to another table, or change this one to fit",
            )

    def write(self, batch: pa.RecordBatch) -> None:
        with self._transaction() as db:
            self._write(db, iter((batch,)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}  # each process connects for itself

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        with self._transaction() as db:
            target = self.table.lower()  # SQLite does not tell case apart
            db.execute("INSERT OR IGNORE INTO streamwork_owners VALUES (?, ?, ?)", (target, uid, sink_id))
            owner = db.execute("SELECT uid, sink FROM streamwork_owners WHERE target = ?", (target,)).fetchone()
            if owner != (uid, sink_id):
                raise Refused(
                    "SW-SINK-OWNED",
                    f"table {self.table} in {self.path} belongs to sink {owner[1]!r} of "
                    + ("this very job" if owner[0] == uid else f"a job with another folder (uid {owner[0]})"),
                    "run with the --root that the table was filled from, and the sink's old id; or write to another table; or, "
                    "to begin anew, remove the table and its row in streamwork_owners",
                )
            row = self._row(db, uid, sink_id)
            if row is not None and row.fence > fence:
                raise fenced(sink_id, row.fence, fence)
            db.execute(
                "INSERT INTO streamwork_ledger (uid, sink, fence) VALUES (?, ?, ?) "
                "ON CONFLICT (uid, sink) DO UPDATE SET fence = excluded.fence",
                (uid, sink_id, fence),
            )

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        with self._transaction() as db:
            return self._row(db, uid, sink_id)

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        with self._transaction() as db:
            verdict = settle(self._row(db, entry.uid, entry.sink), entry)
            if verdict is Verdict.APPLY:
                self._write(db, staged)
                self._advance(db, entry, entry.end)
            elif verdict is Verdict.ADOPT:
                self._advance(db, entry, None)

    def rejects(self, rows: Sequence[pa.RecordBatch]) -> str:
        try:
            with self._transaction() as db:
                self._write(db, iter(rows))
                raise _Enough
        except _Enough:
            return ""
        except RowsRejected as rejected:
            return str(rejected)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, db: sqlite3.Connection, staged: Iterator[pa.RecordBatch]) -> None:
        for batch in staged:
            names, columns = batch.schema.names, [_values(column) for column in batch.columns]
            rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
            if self._key:  # of several rows of one key only the last one shows: write only that
                keys = zip(*(columns[names.index(name)] for name in self._key), strict=True)
                rows = dict(zip(keys, rows, strict=True)).values()
            verb = "INSERT OR REPLACE" if self._key else "INSERT"
            marks = ", ".join("?" * len(names))
            try:
                db.executemany(f"{verb} INTO {_quoted(self.table)} VALUES ({marks})", rows)
            except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError) as error:
                raise RowsRejected(f"{type(error).__name__}: {error}") from error

    @staticmethod
    def _advance(db: sqlite3.Connection, entry: LedgerEntry, position: Position | None) -> None:
        db.execute(
            "UPDATE streamwork_ledger SET position = coalesce(?, position), manifest_sha256 = ? WHERE uid = ? AND sink = ?",
            (
                None if position is None else msgspec.json.encode(position, order="sorted").decode(),
                entry.manifest_sha256,
                entry.uid,
                entry.sink,
            ),
        )

    @staticmethod
    def _row(db: sqlite3.Connection, uid: str, sink_id: str) -> LedgerRow | None:
        found = db.execute(
            "SELECT fence, position, manifest_sha256, mark FROM streamwork_ledger WHERE uid = ? AND sink = ?",
            (uid, sink_id),
        ).fetchone()
        if found is None:
            return None
        fence, position, sha256, mark = found
        return LedgerRow(
            fence, None if position is None else msgspec.json.decode(position, type=Position), sha256, mark
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its start, so that what it read is still true when it
        commits.
        """
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
                "mend the database (is it locked by another program? is the disk full?) and start again: nothing is lost",
            ) from error


class _Enough(Exception):
    """Ends a transaction that was only tried."""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) else "TEXT"


def _values(column: pa.Array) -> list[Any]:
    values = column.to_pylist()
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type) or pa.types.is_nested(column.type):
        return [value if value is None else _text(value, column.type) for value in values]
    return list(values)


def _text(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_nested(kind):
        return msgspec.json.encode(_plain(value, kind)).decode()
    return format(value, "f") if isinstance(value, Decimal) else str(value.isoformat())


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Arrow gives a map as a list of pairs; in JSON it is an object."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return value
