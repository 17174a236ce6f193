"""``history.sqlite``: how long the steps of each epoch took, which epochs came to nothing, and what was counted in all of them.

    epochs    a row for each epoch and what became of it, with the seconds of its steps
    counts    what each instance of each component counted in it; -1 stands for all instances, where they cannot be told apart
    totals    the same since the file was begun, over all epochs: it is never trimmed
    outcomes  how many epochs came to what, and the seconds of their steps, likewise
    ends      where the input of each source partition ended when the driver last looked (`epoch.history.lag`)
    in_doubt  under at-most-once: the input of epochs that broke off (`epoch.in_doubt`); it is never trimmed

It is information for people, never needed for correctness. So it is not synced, and whatever is wrong with it, the job goes on:
a file that is damaged is set aside and a fresh one begun; where even that fails, nothing more is recorded.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from streamwork.delivery.counts import KINDS, Counts
from streamwork.epoch.history.lag import InputEnd
from streamwork.epoch.in_doubt import InDoubt

T = TypeVar("T")
KEEP = 10_000
"""So many epochs are kept."""
KEEP_COUNTS = 1_000
"""Of so many epochs what every instance counted."""
TRIM_EVERY = 100
BUSY_SECONDS = 0.1
"""How long to wait for a reader that is in the way; then the row is left out."""

MOST_TOLD = 5
"""Whatever is wrong with a history, it is not worth a line for each epoch."""

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}  # the last: other tables than ours
_STEPS = ("plan", "compute", "prepare", "commit", "complete", "prune")
_COLUMNS = ("epoch", "fence", "outcome", "started", *_STEPS, "events", "note")
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
_DOUBT = ", ".join(f'"{name}"' for name in InDoubt.__struct_fields__)
_ENDS = ", ".join(f'"{name}"' for name in InputEnd.__struct_fields__)
_KINDS, _SUMS = ", ".join(KINDS), ", ".join(f"{kind} = {kind} + excluded.{kind}" for kind in KINDS)
_SECONDS = ", ".join(f'"{step}" REAL' for step in _STEPS)
_NUMBERS = ", ".join(f"{kind} INTEGER" for kind in KINDS)
_CREATE = (
    f"""CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER, fence INTEGER, outcome TEXT, started REAL, {_SECONDS},
    events INTEGER, note TEXT, PRIMARY KEY (epoch, fence, outcome))""",
    f"""CREATE TABLE IF NOT EXISTS counts (epoch INTEGER, fence INTEGER, outcome TEXT, component TEXT, instance INTEGER,
    {_NUMBERS}, PRIMARY KEY (epoch, fence, outcome, component, instance)) WITHOUT ROWID""",
    f"""CREATE TABLE IF NOT EXISTS totals (outcome TEXT, component TEXT, instance INTEGER, {_NUMBERS},
    PRIMARY KEY (outcome, component, instance)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS in_doubt (epoch INTEGER, fence INTEGER, source TEXT, start INTEGER, "end" INTEGER, unit TEXT,
    PRIMARY KEY (epoch, fence, source)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS ends (source TEXT, partition TEXT, begin INTEGER, "end" INTEGER, unit TEXT, at REAL,
    PRIMARY KEY (source, partition)) WITHOUT ROWID""",
    f"CREATE TABLE IF NOT EXISTS outcomes (outcome TEXT PRIMARY KEY, epochs INTEGER, {_SECONDS}) WITHOUT ROWID",
)


class Result(Enum):
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    ROLLED_FORWARD = "rolled-forward"
    FAILED = "failed"  # computing it raised an error; the driver ended

    @property
    def committed(self) -> bool:
        """True if every sink has it."""
        return self in (Result.COMPLETED, Result.ROLLED_FORWARD)


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


class Count(msgspec.Struct, frozen=True):
    """What one instance of a component counted: in one epoch, or in all that came to the same."""

    outcome: Result
    counts: Counts


class Sum(msgspec.Struct, frozen=True):
    """How many epochs came to the same, and the seconds of their steps."""

    outcome: Result
    epochs: int
    seconds: Seconds


class Recorder(Protocol):
    def record(
        self, row: Row, counts: Sequence[Counts] = (), wasted: Sequence[Counts] = (), once: bool = False
    ) -> None:
        """Take note of an epoch, of what was counted in it, and of what was counted in vain before it was computed again. With
        `once` nothing is done if that epoch is known to be committed already. Never raises.
        """

    def doubt(self, found: Sequence[InDoubt]) -> Sequence[InDoubt]:
        """Take note of input that is in doubt, and return what of it is news: not known already, nor known to be committed.
        Never raises.
        """

    def input_ends(self, ends: Sequence[InputEnd]) -> None:
        """Record where input ends. Never raises."""

    def back_to(self, epoch: int) -> None:
        """A start goes on from this epoch: whatever was committed beyond it was passed over, and counts as done in vain. Never
        raises.
        """

    def close(self) -> None: ...


class NoHistory:
    """Records nothing: for simulations."""

    def record(
        self, row: Row, counts: Sequence[Counts] = (), wasted: Sequence[Counts] = (), once: bool = False
    ) -> None: ...

    def doubt(self, found: Sequence[InDoubt]) -> Sequence[InDoubt]:
        return found

    def input_ends(self, ends: Sequence[InputEnd]) -> None: ...

    def back_to(self, epoch: int) -> None: ...

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

    def record(
        self, row: Row, counts: Sequence[Counts] = (), wasted: Sequence[Counts] = (), once: bool = False
    ) -> None:
        self._attempt(lambda db: self._write(db, row, counts, wasted, once), f"epoch {row.epoch}")

    def doubt(self, found: Sequence[InDoubt]) -> Sequence[InDoubt]:
        news = self._attempt(lambda db: _doubt(db, found), "what is in doubt")
        return found if news is None else news  # better told twice than never

    def input_ends(self, ends: Sequence[InputEnd]) -> None:
        self._attempt(lambda db: _write_ends(db, ends), "where input ends")

    def back_to(self, epoch: int) -> None:
        try:
            if self._db is None and self._path.exists():
                self._db = _open(self._path)
            if self._db is not None:
                with self._db:
                    for row in _committed_beyond(self._db, epoch):
                        _pass_over(self._db, *row)
        except sqlite3.Error:  # then some are counted twice; if it is damaged, the next row finds out
            self._let_go()

    def close(self) -> None:
        self._let_go()

    def _attempt(self, write: Callable[[sqlite3.Connection], T], what: str) -> T | None:
        """What `write` returns; None if it cannot be done."""
        try:
            return write(self._opened())
        except sqlite3.Error as error:
            if error.sqlite_errorcode not in _DAMAGE:  # locked, no room, no folder: the file itself may be good
                self._leave_out(what, error)
                return None
            self._begin_anew(error)
            try:
                return write(self._opened())
            except sqlite3.Error as again:
                self._leave_out(what, again)
                return None

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = _open(self._path)
        return self._db

    def _write(
        self, db: sqlite3.Connection, row: Row, counts: Sequence[Counts], wasted: Sequence[Counts], once: bool
    ) -> None:
        if once and _is_committed(db, row.epoch, row.fence):
            return
        seconds = [getattr(row.seconds, step) for step in _STEPS]
        values = (row.epoch, row.fence, row.outcome.value, row.started, *seconds, row.events, row.note)
        counted = [*_values(row.outcome, counts), *_values(Result.ABANDONED, wasted)]
        with db:
            db.execute(f"INSERT OR REPLACE INTO epochs ({_NAMES}) VALUES ({_marks(values)})", values)
            _add(db, "counts", "epoch, fence, outcome, component, instance", [(*values[:2], *c) for c in counted])
            _add(db, "totals", "outcome, component, instance", counted)
            _add_outcome(db, row.outcome.value, 1, [value or 0.0 for value in seconds])
            if self._recorded % TRIM_EVERY == 0:
                for table, keep in (("epochs", self._keep), ("counts", min(self._keep, KEEP_COUNTS))):
                    db.execute(f"DELETE FROM {table} WHERE epoch <= (SELECT max(epoch) FROM epochs) - ?", (keep,))
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

    def _leave_out(self, what: str, error: Exception) -> None:
        self._trouble(f"{self._path}: {what} is not in it: {error}")
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


# ---- reading: nothing is changed, and what cannot be read is not there -------------------------------------------------


def rows(path: Path, last: int) -> Sequence[Row]:
    """The newest rows, newest first; none if there is no history, or none that can be read."""
    found = _query(path, f"SELECT {_NAMES} FROM epochs ORDER BY epoch DESC, fence DESC, rowid DESC LIMIT ?", (last,))
    try:
        return [_row(dict(zip(_COLUMNS, values, strict=True))) for values in found]
    except msgspec.ValidationError:
        return []


def counts(path: Path, epoch: int) -> list[Count]:
    """What was counted in one epoch, by instance."""
    return _counts(_query(path, f"{_counted(path, 'counts')} WHERE epoch = ?", (epoch,)))


def totals(path: Path) -> list[Count]:
    """What was counted since the history was begun, by what became of it and by instance."""
    return _counts(_query(path, _counted(path, "totals")))


def outcomes(path: Path) -> list[Sum]:
    """How many epochs came to what since the history was begun."""
    steps = ", ".join(f'"{step}"' for step in _STEPS)
    found = _query(path, f"SELECT outcome, epochs, {steps} FROM outcomes")
    try:
        return [
            msgspec.convert(
                {"outcome": outcome, "epochs": epochs, "seconds": dict(zip(_STEPS, seconds, strict=True))}, Sum
            )
            for outcome, epochs, *seconds in found
        ]
    except msgspec.ValidationError:
        return []


def in_doubt(path: Path) -> list[InDoubt]:
    """What is in doubt since the history was begun, oldest first."""
    return _all(path, InDoubt, f"SELECT {_DOUBT} FROM in_doubt ORDER BY epoch, source")


def input_ends(path: Path) -> list[InputEnd]:
    """Where the input of each source partition ended when a driver last looked."""
    return _all(path, InputEnd, f"SELECT {_ENDS} FROM ends ORDER BY source, partition")


def _all(path: Path, kind: type[T], query: str) -> list[T]:
    """The rows of a table whose columns are the fields of `kind`; none if they cannot be read as such."""
    names = [field.name for field in msgspec.structs.fields(kind)]  # type: ignore[arg-type]
    try:
        return [msgspec.convert(dict(zip(names, values, strict=True)), kind) for values in _query(path, query)]
    except msgspec.ValidationError:
        return []


def _counted(path: Path, table: str) -> str:
    """The query for what was counted. What an earlier version did not count is 0."""
    known = {name for _, name, *_ in _query(path, f"PRAGMA table_info({table})")}
    kinds = ", ".join(kind if kind in known else f"0 AS {kind}" for kind in KINDS)
    return f"SELECT outcome, component, instance, {kinds} FROM {table}"


def _query(path: Path, query: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    if not path.exists():
        return []
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            return db.execute(query, values).fetchall()
    except sqlite3.Error:
        return []


def _row(values: dict[str, object]) -> Row:
    return msgspec.convert({**values, "seconds": {step: values[step] for step in _STEPS}}, Row)


def _counts(found: Iterable[tuple[object, ...]]) -> list[Count]:
    names = Counts.__struct_fields__
    try:
        return [
            msgspec.convert({"outcome": outcome, "counts": dict(zip(names, values, strict=True))}, Count)
            for outcome, *values in found
        ]
    except msgspec.ValidationError:
        return []


# ---- writing -----------------------------------------------------------------------------------------------------------


def _values(outcome: Result, counts: Iterable[Counts]) -> list[tuple[object, ...]]:
    return [(outcome.value, *msgspec.structs.astuple(one)) for one in counts]


def _add(db: sqlite3.Connection, table: str, key: str, rows: Sequence[tuple[object, ...]]) -> None:
    """An epoch that is computed several times counts as often."""
    if rows:
        insert = f"INSERT INTO {table} ({key}, {_KINDS}) VALUES ({_marks(rows[0])}) ON CONFLICT DO UPDATE SET {_SUMS}"
        db.executemany(insert, rows)


def _committed_beyond(db: sqlite3.Connection, epoch: int) -> list[tuple[int, int, str]]:
    done = [one.value for one in Result if one.committed]
    query = f"SELECT epoch, fence, outcome FROM epochs WHERE epoch > ? AND outcome IN ({_marks(done)})"
    return db.execute(query, (epoch, *done)).fetchall()


def _add_outcome(db: sqlite3.Connection, outcome: str, epochs: int, seconds: Sequence[float]) -> None:
    more = ", ".join(f'"{name}" = "{name}" + excluded."{name}"' for name in ("epochs", *_STEPS))
    insert = f"INSERT INTO outcomes VALUES (?, ?, {_marks(seconds)}) ON CONFLICT DO UPDATE SET {more}"
    db.execute(insert, (outcome, epochs, *seconds))


def _pass_over(db: sqlite3.Connection, epoch: int, fence: int, outcome: str) -> None:
    """What one epoch counted was in vain."""
    vain, mine = Result.ABANDONED.value, (epoch, fence, outcome)
    where = "WHERE epoch = ? AND fence = ? AND outcome = ?"
    counted = db.execute(f"SELECT component, instance, {_KINDS} FROM counts {where}", mine).fetchall()
    db.execute(f"DELETE FROM counts {where}", mine)
    _add(db, "totals", "outcome, component, instance", [(outcome, *c[:2], *(-n for n in c[2:])) for c in counted])
    _add(db, "totals", "outcome, component, instance", [(vain, *c) for c in counted])
    _add(db, "counts", "epoch, fence, outcome, component, instance", [(epoch, fence, vain, *c) for c in counted])
    steps = ", ".join(f'coalesce("{step}", 0.0)' for step in _STEPS)
    seconds = db.execute(f"SELECT {steps} FROM epochs {where}", mine).fetchone()
    _add_outcome(db, outcome, -1, [-value for value in seconds])
    _add_outcome(db, vain, 1, seconds)
    db.execute(f"UPDATE OR REPLACE epochs SET outcome = ?, note = 'passed over' {where}", (vain, *mine))


def _doubt(db: sqlite3.Connection, found: Sequence[InDoubt]) -> list[InDoubt]:
    open_ones = [one for one in found if not _is_committed(db, one.epoch, one.fence)]
    insert = f"INSERT OR IGNORE INTO in_doubt VALUES ({_marks(InDoubt.__struct_fields__)})"
    with db:
        return [one for one in open_ones if db.execute(insert, msgspec.structs.astuple(one)).rowcount]


def _write_ends(db: sqlite3.Connection, ends: Sequence[InputEnd]) -> None:
    insert = f"INSERT OR REPLACE INTO ends ({_ENDS}) VALUES ({_marks(InputEnd.__struct_fields__)})"
    with db:
        db.executemany(insert, [msgspec.structs.astuple(one) for one in ends])


def _is_committed(db: sqlite3.Connection, epoch: int, fence: int) -> bool:
    known = db.execute("SELECT outcome FROM epochs WHERE epoch = ? AND fence = ?", (epoch, fence)).fetchall()
    return any(Result(outcome).committed for (outcome,) in known if outcome in {one.value for one in Result})


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")}


def _open(path: Path) -> sqlite3.Connection:
    # The driver is closed by whichever thread ends it.
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    try:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA journal_mode=DELETE")
        for table in _CREATE:
            db.execute(table)
        for name in ("counts", "totals"):  # a file of an earlier version
            for kind in set(KINDS) - _columns(db, name):
                db.execute(f"ALTER TABLE {name} ADD COLUMN {kind} INTEGER DEFAULT 0")
    except BaseException:
        db.close()
        raise
    return db
