"""PostgreSQL as a sink. Rows and ledger change in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv

from streamwork.components import Event, LedgerEntry, RowsRejected
from streamwork.components.commit_rule import settle
from streamwork.components.expression import Expression
from streamwork.components.sink import fenced
from streamwork.connectors.address import HIDDEN, Address, needed, wrong_address
from streamwork.connectors.pieces import gathered, newest
from streamwork.connectors.sql_commits import Commit
from streamwork.connectors.sql_sink import LOCK_SECONDS, Names, SqlSink
from streamwork.connectors.sql_views import DELETED
from streamwork.connectors.text import with_text
from streamwork.errors import JobFailed, WrongUse

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

E = TypeVar("E", bound=Event)
LONGEST_NAME = 63  # bytes; PostgreSQL silently truncates longer names
RECONNECT_SECONDS = 10.0
_FORM = "postgresql://user@host:5432/database, or as key=value pairs"
_STAGING = "streamwork_staging"
_REMOVED = "streamwork_removed"
_LAST = f"(SELECT DISTINCT ON ({{key}}) * FROM {_STAGING} ORDER BY {{key}}, __row DESC) n"
# Error classes whose cause is the row: 21 two keys that are equal in the table, 22 a value out of range, 23 a constraint, 44 a
# view's check option, 45 raised by a trigger, 54 longer than an index or a row may be, P0 raised by PL/pgSQL.
_ROW_STATES = ("21", "22", "23", "44", "45", "54", "P0")
_CSV = pyarrow.csv.WriteOptions(include_header=False)
# A driver that hangs between two statements, or whose machine is lost, must not hold the lock on the ledger row for ever. (One
# that hangs while it sends rows does hold it: the next driver then fails with a lock timeout.)
_BEGIN = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{LOCK_SECONDS}s'; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{LOCK_SECONDS - 10}s'; SET LOCAL tcp_keepalives_idle = 10; "
    "SET LOCAL tcp_keepalives_interval = 5; SET LOCAL tcp_keepalives_count = 3"
)


class PostgresSink(SqlSink[E], Generic[E]):
    """Writes events to a table, which it creates if it does not exist. With `key` a row replaces the row of the same key; without,
    rows are appended. `delete` is a condition on fields: an event for which it is true removes the row of its key.

    `dsn` is a connection string or a URL (``postgresql://user@host/database``) as libpq understands it. A password in
    it is never printed; prefer PGPASSWORD or a password file. The table is resolved by the search path.

    Types: text, bigint, double precision, boolean, bytea, timestamptz, date, numeric(p, s); lists, dicts and nested events are
    jsonb. An existing table may have further columns, and other types to which PostgreSQL converts these.

    A commit:
        1  locks the ledger row and applies the commit rule, so that no other driver commits or registers before it ends;
        2  sends the rows with COPY; with a key into a temporary table first, from which the last row per key is merged into
           the target, or removes the row there;
        3  advances the ledger row, removes previews, commits. If the answer is lost, the ledger row shows the outcome.
    """

    row_lock = " FOR UPDATE"
    numbered = "BIGINT GENERATED ALWAYS AS IDENTITY"
    reserved = ("streamwork_", "pg_")

    def __init__(
        self,
        dsn: str,
        table: str,
        key: str | Iterable[str] | None = None,
        *,
        delete: Expression | None = None,
    ) -> None:
        super().__init__(table, key, delete)
        if len(self._preview.encode()) > LONGEST_NAME:
            most = LONGEST_NAME - len("__preview")
            raise WrongUse("SW-SINK-TABLE", f"the name {table!r} is too long", f"use at most {most} bytes")
        self.address = postgres_address(dsn)
        self._connection: psycopg.Connection[Any] | None = None
        self._was_connected = False

    def __repr__(self) -> str:
        deletes = f", delete={self._deletes.condition!r}" if self._deletes else ""
        return f"PostgresSink({self.address!r}, {self.table!r}, key={self._key or None!r}{deletes})"

    def with_target(self, target: str) -> PostgresSink[E]:
        """TABLE, in the same database: an address could hold a password, and targets are stored."""
        return PostgresSink(self.address.whole, target, self._key or None, delete=self._deletes.condition)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}  # each process opens its own connection

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        try:
            with self._transaction() as db:
                verdict = settle(self._row(db, entry.uid, entry.sink), entry)  # 1
                self._carry_out(db, verdict, entry, staged)  # 2
        except _AnswerLost as lost:  # 3
            self._find_out(entry, lost)

    def _find_out(self, entry: LedgerEntry, lost: _AnswerLost) -> None:
        """Return if the commit succeeded. Waits for the lost transaction if it is still in flight: it holds the lock on the row."""
        with self._transaction() as db:
            row = self._row(db, entry.uid, entry.sink)
        if row is not None and row.manifest_sha256 == entry.manifest_sha256:
            return
        if row is not None and row.fence > entry.fence:
            raise fenced(entry.sink, row.fence, entry.fence)
        raise lost

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # the connection may be broken
                self._connection.close()
            self._connection = None

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _write(self, db: psycopg.Connection[Any], staged: Iterator[pa.RecordBatch]) -> None:
        columns = self._schema.names
        with _rejecting():
            if not self._key:
                self._copy(db, self.table, columns, staged)
            else:
                if self._deletes:
                    self._alone_in_table(db)
                self._stage(db, newest(staged, self._key))
                if self._deletes:
                    self._remove(db)
                others = [name for name in columns if name not in self._key]
                change = ", ".join(f"{{o{number}}} = EXCLUDED.{{o{number}}}" for number in range(len(others)))
                self._execute(
                    db,
                    # in the order of keys, so that two writers do not deadlock
                    f"INSERT INTO {{table}} ({{columns}}) SELECT {{columns}} FROM {_LAST} "
                    + (f"WHERE NOT {DELETED} " if self._deletes else "")
                    + "ORDER BY {key} ON CONFLICT ({key}) DO "
                    + (f"UPDATE SET {change}" if others else "NOTHING"),
                    table=self.table,
                    columns=columns,
                    key=self._key,
                    **{f"o{number}": name for number, name in enumerate(others)},
                )
                self._execute(db, f"DROP TABLE {_STAGING}")
            # Deferred constraints fail here and not in COMMIT.
            self._execute(db, "SET CONSTRAINTS ALL IMMEDIATE")

    def _stage(self, db: psycopg.Connection[Any], staged: Iterator[pa.RecordBatch]) -> None:
        names = {f"c{number}": name for number, name in enumerate(self._schema.names)}
        types = [f"{{{c}}} {self._sql_type(field.type)}" for c, field in zip(names, self._schema, strict=True)]
        columns = [*self._schema.names, "__row"]
        rows = _numbered(staged)
        if self._deletes:
            types.append(f"{DELETED} boolean")
            columns.append(DELETED)
            rows = (batch.append_column(DELETED, self._deletes.mask(batch)) for batch in rows)
        table = f"CREATE TEMPORARY TABLE {_STAGING} ({', '.join(types)}, __row bigint) ON COMMIT DROP"
        self._execute(db, table, **names)
        self._copy(db, _STAGING, columns, rows)

    def _remove(self, db: psycopg.Connection[Any]) -> None:
        """Delete the keys of deletes. They pass through a table with the types of the target, so that they are converted as rows
        are: an existing table may have `text` where the event has an int, or fewer digits.
        """
        key = {f"k{number}": name for number, name in enumerate(self._key)}
        same = " AND ".join(f"t.{{{k}}} = r.{{{k}}}" for k in key)
        like = f"CREATE TEMPORARY TABLE {_REMOVED} ON COMMIT DROP AS SELECT {{key}} FROM {{table}} WITH NO DATA"
        self._execute(db, like, key=self._key, table=self.table)
        chosen = f"INSERT INTO {_REMOVED} ({{key}}) SELECT {{key}} FROM {_LAST} WHERE {DELETED}"
        self._execute(db, chosen, key=self._key)
        self._execute(db, f"DELETE FROM {{table}} t USING {_REMOVED} r WHERE {same}", table=self.table, **key)
        self._execute(db, f"DROP TABLE {_REMOVED}")

    def _alone_in_table(self, db: psycopg.Connection[Any]) -> None:
        """Lock the table for this writer. Two writers that delete and replace cannot both proceed in the order of keys, and would
        deadlock.
        """
        lock = "SELECT pg_advisory_xact_lock(hashtext('streamwork'), hashtext(?))"
        self._execute(db, lock, (self.table,))

    def _may_create(self, db: psycopg.Connection[Any]) -> bool:
        found = db.execute("SELECT has_schema_privilege(current_schema(), 'CREATE')").fetchone()
        return bool(found and found[0])

    def _stamp(self, db: psycopg.Connection[Any]) -> int | None:
        """The number of the transaction, which each of its rows carries as `xmin`: 32 bits of it."""
        found: int = db.execute("SELECT txid_current() & 4294967295").fetchone()[0]  # type: ignore[index]
        return found

    def _since(self, db: psycopg.Connection[Any], at: Commit, later: Sequence[Commit]) -> tuple[str, tuple[Any, ...]]:
        return "xmin::text::bigint = ANY (?)", ([one.stamp for one in later if one.added],)

    def _add(self, db: psycopg.Connection[Any], table: str, batch: pa.RecordBatch) -> None:
        with _rejecting():
            self._copy(db, table, batch.schema.names, iter((batch,)))

    def _copy(
        self, db: psycopg.Connection[Any], table: str, columns: Sequence[str], staged: Iterator[pa.RecordBatch]
    ) -> None:
        statement = self._composed(
            "COPY {table} ({columns}) FROM STDIN (FORMAT csv)", False, table=table, columns=columns
        )
        with db.cursor() as cursor, cursor.copy(statement) as copy:
            for batch in gathered(staged):
                copy.write(_csv(batch))

    # ---- the database ------------------------------------------------------------------------------------------------

    def _execute(self, db: psycopg.Connection[Any], statement: str, values: Sequence[Any] = (), **names: Names) -> Any:
        return db.execute(self._composed(statement, bool(values), **names), values or None)

    @staticmethod
    def _composed(statement: str, has_values: bool, **names: Names) -> sql.Composed:
        from psycopg import sql

        def quoted(given: Names) -> sql.Composable:
            escaped = [
                n.replace("%", "%%") if has_values else n for n in ([given] if isinstance(given, str) else given)
            ]
            return sql.SQL(", ").join(map(sql.Identifier, escaped))

        text: Any = statement.replace("?", "%s")
        return sql.SQL(text).format(**{name: quoted(given) for name, given in names.items()})

    def _alone(self, db: psycopg.Connection[Any]) -> None:
        db.execute("SELECT pg_advisory_xact_lock(hashtext('streamwork'))")

    def _exists(self, db: psycopg.Connection[Any], name: str) -> bool:
        asked = "SELECT 1 FROM pg_catalog.pg_class WHERE relname = %s AND pg_catalog.pg_table_is_visible(oid)"
        return db.execute(asked, (name,)).fetchone() is not None

    def _columns_of(self, db: psycopg.Connection[Any], table: str) -> list[str]:
        asked = (
            "SELECT attname FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class c ON c.oid = attrelid "
            "WHERE relname = %s AND pg_catalog.pg_table_is_visible(c.oid) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return [name for (name,) in db.execute(asked, (table,))]

    def _misfit(self, db: psycopg.Connection[Any]) -> str:
        found = self._columns_of(db, self.table)
        unique = (
            "SELECT array_agg(a.attname::text) FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid "
            "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) "
            "WHERE c.relname = %s AND pg_catalog.pg_table_is_visible(c.oid) AND i.indisunique AND i.indisvalid "
            "AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid"
        )
        keys = [set(names) for (names,) in db.execute(unique, (self.table,))]
        if set(self._schema.names) <= set(found) and (not self._key or set(self._key) in keys):
            return ""
        shown = " or ".join(", ".join(sorted(names)) for names in keys)
        return f"columns {', '.join(found)} (unique: {shown or 'none'})"

    def _sql_type(self, kind: pa.DataType) -> str:
        for is_kind, name in _TYPES:
            if is_kind(kind):
                return name
        return f"numeric({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else "jsonb"

    @property
    def _where(self) -> str:
        return str(self.address)

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        import psycopg

        try:
            db = self._begun()
            try:
                yield db
                ended = False
            except BaseException:
                ended = True
                with suppress(psycopg.Error):
                    db.execute("ROLLBACK")
                raise
            finally:
                if ended and db.broken:
                    self.close()
            self._end(db)
        except psycopg.Error as error:
            raise self._failed(error) from self.address.cause(error)

    def _begun(self) -> psycopg.Connection[Any]:
        import psycopg

        if self._connection is not None:
            try:
                self._connection.execute(_BEGIN)
                return self._connection
            except psycopg.OperationalError:  # the connection was lost since; no transaction was in flight
                self.close()
        db = self._connected()
        db.execute(_BEGIN)
        return db

    def _connected(self) -> psycopg.Connection[Any]:
        """A new connection. If this sink was connected before, it waits some time for the server to come back."""
        import psycopg

        deadline = time.monotonic() + (RECONNECT_SECONDS if self._was_connected else 0)
        while True:
            try:
                self._connection = psycopg.connect(
                    self.address.whole, autocommit=True, prepare_threshold=None, client_encoding="utf8"
                )
                self._was_connected = True
                return self._connection
            except psycopg.OperationalError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)

    def _end(self, db: psycopg.Connection[Any]) -> None:
        import psycopg

        try:
            said = db.execute("COMMIT").statusmessage
        except psycopg.OperationalError as error:
            self.close()
            raise _AnswerLost(*self._failed(error).args) from self.address.cause(error)
        if said != "COMMIT":
            raise psycopg.OperationalError(f"the server answered COMMIT with {said}")

    def _failed(self, error: psycopg.Error) -> JobFailed:
        return JobFailed(
            "SW-SINK-FAILED",
            self.address.redact(f"{self.address}: {type(error).__name__}: {str(error).strip()}"),
            "check the database and the network, and start again: nothing is lost. After a lock timeout, end the driver that hangs "
            "in a commit",
        )


class _AnswerLost(JobFailed):
    """The outcome of a COMMIT is unknown."""


def postgres_address(dsn: str) -> Address:
    needed("psycopg", "postgres")
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    except psycopg.ProgrammingError:  # its text quotes the string, with the password
        raise wrong_address(_FORM) from None
    if "@" in parts.get("host", ""):  # a password with an @ in it: its end would be taken for the host, and printed
        raise wrong_address(f"{_FORM}; in a URL, an @ in the password is written %40")
    secrets = {name: value for name, value in parts.items() if "password" in name and name != "passfile"}
    shown = " ".join(f"{name}={HIDDEN if name in secrets else value}" for name, value in parts.items())
    return Address(dsn, shown, tuple(secrets.values()))


@contextmanager
def _rejecting() -> Iterator[None]:
    """Turn errors whose cause is a row into RowsRejected. Other errors of the database pass through."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate is None or not error.sqlstate.startswith(_ROW_STATES):
            raise
        raise RowsRejected(f"{type(error).__name__}: {str(error).strip()}") from error


_TYPES = (
    (pa.types.is_string, "text"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_timestamp, "timestamptz"),
    (pa.types.is_date, "date"),
)


def _numbered(staged: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in staged:
        numbers = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
        yield batch.append_column("__row", numbers)
        first += batch.num_rows


def _csv(batch: pa.RecordBatch) -> memoryview:
    """The batch as CSV, written by Arrow. Text is always quoted, so that an empty text is not NULL."""
    out = pa.BufferOutputStream()
    plain = pa.RecordBatch.from_arrays([_plain(column) for column in batch.columns], names=batch.schema.names)
    pyarrow.csv.write_csv(plain, out, _CSV)
    return memoryview(out.getvalue())


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type):
        return pa.array(with_text(column), pa.string())
    if pa.types.is_binary(column.type):
        return pa.array([None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()], pa.string())
    return column
