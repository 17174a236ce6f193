"""The base of sinks that write to a table of a database: owner, ledger, previews.

Beside the target table TABLE:
    streamwork_ledger    one row per (uid, sink id): the ledger row, with the registered fence
    streamwork_owners    the sink and the job that own a table or a preview
    streamwork_commits   which rows came with which checkpoint, of a table that is appended to (`sql_commits`)
    TABLE__preview       rows of open checkpoints, labelled; exists if the sink writes previews
    TABLE__dirty         a view over both, for readers that accept uncommitted rows

A table or view with the name of a preview that the sink has not created belongs to the user and is never changed. Those of the
sink are recorded in streamwork_owners, and have the columns of a preview.

A slow task may write previews late: of a checkpoint that is committed, or was abandoned. The `mark` of the
ledger row is the newest committed or abandoned checkpoint of the registered driver. Previews up to the mark are not added. The view
does not show those that were in flight when the mark was set, and the next checkpoint removes them.

Each database is a subclass. It provides transactions, which keep a lock on the ledger row they have read, and bulk writes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components import (
    Event,
    LedgerEntry,
    LedgerRow,
    Position,
    PreviewLabel,
    RowsRejected,
    Sink,
    SinkKind,
)
from streamwork.components.commit_rule import Verdict
from streamwork.components.expression import Expression
from streamwork.components.schema import arrow_schema
from streamwork.components.sink import fenced
from streamwork.connectors.keyed import Deletes, check_key
from streamwork.connectors.sql_commits import CREATE, KEPT, TABLE, Commit, Counted, split_at
from streamwork.connectors.sql_views import DELETED, LABELS, dirty_view, preview_table
from streamwork.errors import Refused, WrongUse

E = TypeVar("E", bound=Event)
LOCK_SECONDS = 30.0
BESIDE = " (preview)"  # appended to the sink's id in the owner of its preview table and view; no id has a space
Names = str | Sequence[str]
_LEDGER = (
    "CREATE TABLE streamwork_ledger (uid TEXT NOT NULL, sink TEXT NOT NULL, position TEXT, fence BIGINT NOT NULL, "
    "manifest_sha256 TEXT NOT NULL DEFAULT '', mark TEXT NOT NULL DEFAULT '', PRIMARY KEY (uid, sink))"
)
_OWNERS = "CREATE TABLE streamwork_owners (target TEXT PRIMARY KEY, uid TEXT NOT NULL, sink TEXT NOT NULL)"


class SqlSink(Sink[E], Generic[E]):
    kind = SinkKind.TRANSACTIONAL
    previews = True
    reserved: ClassVar[tuple[str, ...]] = ("streamwork_",)  # reserved prefixes of table names
    row_lock: ClassVar[str] = ""  # the clause that makes a SELECT lock a row until the transaction ends
    numbered: ClassVar[str]  # the type of a column that numbers the rows

    def __init__(self, table: str, key: str | Iterable[str] | None = None, delete: Expression | None = None) -> None:
        if not table or table.lower().startswith(self.reserved) or "\x00" in table:
            raise WrongUse("SW-SINK-TABLE", f"{table!r} cannot be the name of a table", "choose another name")
        self.table = table
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        self._deletes = Deletes(delete, self._key)
        self._schema: pa.Schema = None
        self._has_preview = False  # stays True once the preview table was found
        self._records = False  # True if it records which rows come with which checkpoint
        self._fence = 0  # registered by this driver
        self._shows_previews = False  # True if preview table and view are known to fit

    # ---- implemented by each database --------------------------------------------------------------------------------

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """A connection, in one transaction. An error in it is SW-SINK-FAILED, and rolls it back."""

    @abstractmethod
    def _execute(self, db: Any, statement: str, values: Sequence[Any] = (), **names: Names) -> Any:
        """Run a statement, in which ? stands for a value and {name} for quoted identifiers. Returns its cursor."""

    @abstractmethod
    def _write(self, db: Any, staged: Iterator[pa.RecordBatch]) -> None:
        """Add, replace or remove rows of the target. Raises `RowsRejected`."""

    @abstractmethod
    def _add(self, db: Any, table: str, batch: pa.RecordBatch) -> None:
        """Add rows to a table that has the columns of the batch. Raises `RowsRejected`."""

    @abstractmethod
    def _exists(self, db: Any, name: str) -> bool:
        """True if a table or view of this name exists."""

    @abstractmethod
    def _misfit(self, db: Any) -> str:
        """The reason why the existing table cannot be the target; empty if it can."""

    @abstractmethod
    def _columns_of(self, db: Any, table: str) -> list[str]: ...

    @abstractmethod
    def _sql_type(self, kind: pa.DataType) -> str: ...

    @property
    @abstractmethod
    def _where(self) -> str:
        """The name of the database in errors."""

    def _alone(self, db: Any) -> None:
        """Take the lock under which tables are created."""

    # ---- the target --------------------------------------------------------------------------------------------------

    def check(self, event: type[E]) -> None:
        if self._key:
            check_key(event, self._key)
        self._deletes.check(event)
        arrow_schema(event)

    def newest_by(self) -> tuple[str, ...]:
        return self._key

    def removes(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        return self._deletes.mask(batch) if self._deletes else None

    def check_target(self, uid: str, sink_id: str) -> None:
        with self._transaction() as db:
            if self._exists(db, "streamwork_owners"):
                self._check_owner(db, uid, sink_id)

    def open(self, event: type[E]) -> None:
        self.check(event)
        self._schema = arrow_schema(event)
        with self._transaction() as db:  # a refusal rolls back the creation of tables
            self._alone(db)
            for name, statement in (("streamwork_ledger", _LEDGER), ("streamwork_owners", _OWNERS)):
                # Not IF NOT EXISTS, which needs the right to create even if the table exists.
                if not self._exists(db, name):
                    self._execute(db, statement)
            if not self._exists(db, self.table):
                self._create(db, self.table, ["PRIMARY KEY ({key})"] if self._key else [], key=self._key)
                self._forget_ledger(db)
            if not self._key and not self._exists(db, TABLE) and self._may_create(db):
                self._execute(db, CREATE)
            self._records = not self._key and self._exists(db, TABLE)
            if misfit := self._misfit(db):
                raise Refused(
                    "SW-SINK-SCHEMA",
                    f"table {self.table} in {self._where} has {misfit}, but {event.__name__} has "
                    f"{', '.join(self._schema.names)} (key: {', '.join(self._key) or 'none'})",
                    "write to another table, or alter this one to fit",
                )

    def _forget_ledger(self, db: Any) -> None:
        """Remove the ledger row of a dropped table with the same name."""
        owner = "SELECT uid, sink FROM streamwork_owners WHERE target = ?"
        if (found := self._execute(db, owner, (self._target,)).fetchone()) is not None:
            self._execute(db, "DELETE FROM streamwork_ledger WHERE uid = ? AND sink = ?", tuple(found))
            if self._exists(db, TABLE):
                self._execute(db, f"DELETE FROM {TABLE} WHERE uid = ? AND sink = ?", tuple(found))

    def _create(self, db: Any, table: str, more: Sequence[str] = (), **names: Names) -> None:
        """Create a table with the event's columns and further ones."""
        columns = {f"c{number}": name for number, name in enumerate(self._schema.names)}
        types = [f"{{{c}}} {self._sql_type(field.type)}" for c, field in zip(columns, self._schema, strict=True)]
        statement = f"CREATE TABLE {{table}} ({', '.join([*types, *more])})"
        self._execute(db, statement, table=table, **columns, **names)

    # ---- owner and ledger --------------------------------------------------------------------------------------------

    def _known_as(self, name: str) -> str:
        """The name of a table as recorded in streamwork_owners."""
        return name

    @property
    def _target(self) -> str:
        return self._known_as(self.table)

    def _check_owner(self, db: Any, uid: str, sink_id: str) -> None:
        owner = self._execute(
            db, "SELECT uid, sink FROM streamwork_owners WHERE target = ?", (self._target,)
        ).fetchone()
        if owner is not None and owner != (uid, sink_id):
            raise Refused(
                "SW-SINK-OWNED",
                f"table {self.table} in {self._where} belongs to sink {owner[1]!r} of "
                + ("this job" if owner[0] == uid else f"a job with another root (uid {owner[0]})"),
                "run with the --root that the table was written from, and the sink's old id; or write to another table; or "
                "remove the table and its row in streamwork_owners to start from scratch",
            )
        before = self._execute(
            db,
            "SELECT target FROM streamwork_owners WHERE uid = ? AND sink = ? AND target <> ?",
            (uid, sink_id, self._target),
        ).fetchone()
        if before is not None:  # the ledger row belongs to that table
            raise Refused(
                "SW-SINK-MOVED",
                f"sink {sink_id!r} of this job has written to table {before[0]} in {self._where} so far; its rows would "
                f"be missing in {self.table}",
                f"write to {before[0]} again; or rename it to {self.table} in the database and in streamwork_owners; or, to write "
                "a new table from the start, give the sink another id",
            )

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        with self._transaction() as db:
            self._execute(
                db,
                "INSERT INTO streamwork_owners (target, uid, sink) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (self._target, uid, sink_id),
            )
            self._check_owner(db, uid, sink_id)
            self._execute(
                db,
                "INSERT INTO streamwork_ledger (uid, sink, fence) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (uid, sink_id, fence),
            )
            row = self._row(db, uid, sink_id)
            assert row is not None
            if row.fence > fence:
                raise fenced(sink_id, row.fence, fence)
            change = "UPDATE streamwork_ledger SET fence = ?, mark = '' WHERE uid = ? AND sink = ?"
            self._execute(db, change, (fence, uid, sink_id))
            self._remove_previews(db, uid, sink_id)
        self._fence = fence

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        with self._transaction() as db:
            there = self._exists(db, "streamwork_ledger") and self._exists(db, self.table)
            return self._row(db, uid, sink_id, lock="") if there else None

    def _row(self, db: Any, uid: str, sink_id: str, lock: str | None = None) -> LedgerRow | None:
        statement = "SELECT fence, position, manifest_sha256, mark FROM streamwork_ledger WHERE uid = ? AND sink = ?"
        found = self._execute(db, statement + (self.row_lock if lock is None else lock), (uid, sink_id)).fetchone()
        if found is None:
            return None
        fence, position, sha256, mark = found
        return LedgerRow(fence, None if position is None else Position.from_json(position), sha256, mark)

    def _advance(self, db: Any, entry: LedgerEntry, position: Position | None) -> None:
        self._execute(
            db,
            "UPDATE streamwork_ledger SET position = coalesce(?, position), manifest_sha256 = ? WHERE uid = ? AND sink = ?",
            (
                None if position is None else position.to_json(),
                entry.manifest_sha256,
                entry.uid,
                entry.sink,
            ),
        )

    # ---- rows --------------------------------------------------------------------------------------------------------

    def write(self, batch: pa.RecordBatch) -> None:
        with self._transaction() as db:
            self._write(db, iter((batch,)))

    def _carry_out(self, db: Any, verdict: Verdict, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        """Execute the verdict of the commit rule, in the same transaction."""
        if verdict is Verdict.APPLY:
            counted = Counted(staged)
            self._write(db, iter(counted))
            self._advance(db, entry, entry.end)
            self._note(db, entry, counted.rows)
        elif verdict is Verdict.ADOPT:
            self._advance(db, entry, None)
            self._note(db, entry, 0)
        self._end_previews(db, entry.uid, entry.sink, entry.epoch)

    def rejects(self, rows: Sequence[pa.RecordBatch]) -> str:
        try:
            with self._transaction() as db:
                self._write(db, iter(rows))
                raise _Enough
        except _Enough:
            return ""
        except RowsRejected as rejected:
            return str(rejected)

    def used(self) -> str:
        with self._transaction() as db:
            if not self._exists(db, self.table):
                return ""
            row = self._execute(db, "SELECT 1 FROM {table} LIMIT 1", table=self.table).fetchone()
        return "" if row is None else f"table {self.table} in {self._where} has rows"

    # ---- rewinding ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def _stamp(self, db: Any) -> int | None:
        """What distinguishes the rows of this transaction, and those before it, from later ones; None if nothing does."""

    def _may_create(self, db: Any) -> bool:
        """False if tables that are not there cannot be created."""
        return True

    @abstractmethod
    def _since(self, db: Any, at: Commit, later: Sequence[Commit]) -> tuple[str, tuple[Any, ...]]:
        """The condition that is true for the rows of the `later` commits, and its values."""

    def _note(self, db: Any, entry: LedgerEntry, added: int) -> None:
        """Record what a commit has added."""
        if not self._records or (stamp := self._stamp(db)) is None:
            return
        mine = (entry.uid, entry.sink)
        newest = self._execute(db, f"SELECT max(number) FROM {TABLE} WHERE uid = ? AND sink = ?", mine).fetchone()[0]
        number = 1 if newest is None else newest + 1
        commit = (*mine, number, entry.manifest_sha256, added, stamp)
        self._execute(
            db,
            f"INSERT INTO {TABLE} (uid, sink, number, manifest_sha256, added, stamp) VALUES (?, ?, ?, ?, ?, ?)",
            commit,
        )
        if number > KEPT:
            old = f"DELETE FROM {TABLE} WHERE uid = ? AND sink = ? AND number <= ?"
            self._execute(db, old, (*mine, number - KEPT))

    def _rewinding(self, db: Any, uid: str, sink_id: str, to: LedgerRow) -> tuple[Commit, Sequence[Commit]] | str:
        """The commit to rewind to and those after it; or why that cannot be."""
        if self._key:
            return "it replaces the rows of a key, and keeps none that was there before"
        if not self._exists(db, TABLE):
            return "it was written by a version that did not record which rows came with which checkpoint"
        asked = f"SELECT number, manifest_sha256, added, stamp FROM {TABLE} WHERE uid = ? AND sink = ? ORDER BY number"
        commits = [Commit(*row) for row in self._execute(db, asked, (uid, sink_id)).fetchall()]
        found = split_at(commits, to.manifest_sha256)
        if found is None:
            return "it has no record of that checkpoint, which is too old or was written by an older version"
        condition, values = self._since(db, *found)
        there = self._execute(
            db, f"SELECT count(*) FROM {{table}} WHERE {condition}", values, table=self.table
        ).fetchone()
        added = sum(one.added for one in found[1])
        if there[0] != added:
            return f"{added:,} rows were added since, and {there[0]:,} are there: others have changed the table"
        return found

    def cannot_rewind(self, uid: str, sink_id: str, to: LedgerRow) -> str:
        with self._transaction() as db:
            found = self._rewinding(db, uid, sink_id, to)
        return found if isinstance(found, str) else ""

    def rewind(self, uid: str, sink_id: str, to: LedgerRow) -> int:
        assert to.position is not None, "a sink is rewound to a checkpoint"
        with self._transaction() as db:
            row = self._row(db, uid, sink_id)
            if row is not None and row.fence > to.fence:
                raise fenced(sink_id, row.fence, to.fence)
            found = self._rewinding(db, uid, sink_id, to)
            if isinstance(found, str):
                raise Refused(
                    "SW-SINK-AHEAD", f"sink {sink_id} cannot be rewound: {found}", "bring back a copy of the target"
                )
            at, later = found
            condition, values = self._since(db, at, later)
            self._execute(db, f"DELETE FROM {{table}} WHERE {condition}", values, table=self.table)
            mine = (uid, sink_id)
            self._execute(db, f"DELETE FROM {TABLE} WHERE uid = ? AND sink = ? AND number > ?", (*mine, at.number))
            change = "UPDATE streamwork_ledger SET position = ?, manifest_sha256 = ? WHERE uid = ? AND sink = ?"
            self._execute(db, change, (to.position.to_json(), to.manifest_sha256, *mine))
        return sum(one.added for one in later)

    # ---- previews ----------------------------------------------------------------------------------------------------

    @property
    def _preview(self) -> str:
        return f"{self.table}__preview"

    @property
    def _dirty(self) -> str:
        return f"{self.table}__dirty"

    def preview(self, label: PreviewLabel, batch: pa.RecordBatch) -> None:
        """Write previews. Rows that the database rejects are left out; the commit applies `on_error` to them."""
        self.open_previews(label.uid, label.sink)
        columns = {
            f"__{name}": pa.array([value] * batch.num_rows) for name, value in msgspec.structs.asdict(label).items()
        }
        if self._deletes:
            columns[DELETED] = self._deletes.mask(batch)
        labelled = pa.RecordBatch.from_arrays([*columns.values(), *batch.columns], [*columns, *batch.schema.names])
        try:
            with self._transaction() as db:
                row = self._row(db, label.uid, label.sink, lock="")
                if row is not None and row.fence > label.fence:
                    raise fenced(label.sink, row.fence, label.fence)
                if row is None or not row.mark or label.epoch > int(row.mark):
                    self._add(db, self._preview, labelled)
        except RowsRejected:
            half = batch.num_rows // 2
            for part in (batch.slice(0, half), batch.slice(half)) if half else ():
                self.preview(label, part)

    def withdraw(self, uid: str, sink_id: str, epoch: int) -> None:
        with self._transaction() as db:
            row = self._row(db, uid, sink_id)
            if row is not None and row.fence == self._fence:
                self._end_previews(db, uid, sink_id, epoch)

    def _end_previews(self, db: Any, uid: str, sink_id: str, epoch: int) -> None:
        """End the previews of a committed or abandoned checkpoint, and of those before it."""
        if self._remove_previews(db, uid, sink_id, epoch):
            over = "UPDATE streamwork_ledger SET mark = ? WHERE uid = ? AND sink = ?"
            self._execute(db, over, (str(epoch), uid, sink_id))

    def _remove_previews(self, db: Any, uid: str, sink_id: str, epoch: int | None = None) -> bool:
        """Remove the previews up to an epoch, or all: the table has one owner. False if there is no preview table."""
        self._has_preview = self._has_preview or self._is_ours(db, self._preview, uid, sink_id)
        if self._has_preview:
            upto, values = (" WHERE __epoch <= ?", (epoch,)) if epoch is not None else ("", ())
            self._execute(db, "DELETE FROM {preview}" + upto, values, preview=self._preview)
        return self._has_preview

    def _is_ours(self, db: Any, name: str, uid: str, sink_id: str) -> bool:
        """True if the sink has created this table or view, and it still has the columns of a preview."""
        recorded = "SELECT 1 FROM streamwork_owners WHERE target = ? AND uid = ? AND sink = ?"
        if self._execute(db, recorded, (self._known_as(name), uid, sink_id + BESIDE)).fetchone() is None:
            return False
        needed = set(LABELS if name == self._preview else ("__epoch", *self._key))
        return self._exists(db, name) and needed <= set(self._columns_of(db, name))

    def _record(self, db: Any, name: str, uid: str, sink_id: str) -> None:
        self._execute(db, "DELETE FROM streamwork_owners WHERE target = ?", (self._known_as(name),))
        made = "INSERT INTO streamwork_owners (target, uid, sink) VALUES (?, ?, ?)"
        self._execute(db, made, (self._known_as(name), uid, sink_id + BESIDE))

    def open_previews(self, uid: str, sink_id: str) -> None:
        if self._shows_previews:
            return
        labels, names = preview_table(self.numbered), self._schema.names
        with self._transaction() as db:
            self._alone(db)
            for name in (self._preview, self._dirty):
                if self._exists(db, name) and not self._is_ours(db, name, uid, sink_id):
                    raise Refused(
                        "SW-SINK-PREVIEW",
                        f"{name} in {self._where} was not created by sink {sink_id!r}, which needs that name for its previews",
                        "rename it; or write to another table; or give the sink isolation='read-committed'; or drop it, if an "
                        "earlier run of the job with another root created it",
                    )
            found = self._columns_of(db, self._preview) if self._exists(db, self._preview) else []
            # A table of an older schema of the event is replaced; previews need not be kept.
            if found and not {*names, DELETED} <= set(found):
                self._execute(db, "DROP VIEW IF EXISTS {dirty}", dirty=self._dirty)
                self._execute(db, "DROP TABLE {preview}", preview=self._preview)
                found = []
            if not found:
                self._create(db, self._preview, labels)
                self._record(db, self._preview, uid, sink_id)
            if not self._exists(db, self._dirty):
                view = {"dirty": self._dirty, "table": self.table, "preview": self._preview, "columns": names}
                keys = {f"k{number}": name for number, name in enumerate(self._key)}
                self._execute(db, dirty_view(len(keys)), **view, **keys)
                self._record(db, self._dirty, uid, sink_id)
        self._has_preview = self._shows_previews = True


class _Enough(Exception):
    """Rolls back a trial transaction."""
