"""Reads ``history.sqlite``. Nothing is changed; a history that is missing or cannot be read has no rows."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.delivery.counts import KINDS, Counts
from streamwork.epoch.history.durations import QUERY as DURATIONS
from streamwork.epoch.history.durations import Durations
from streamwork.epoch.history.durations import durations as read_durations
from streamwork.epoch.history.lag import InputEnd, Sample
from streamwork.epoch.history.tables import COLUMNS, ENDS, IN_DOUBT, NAMES, SAMPLES, STATES, STEPS
from streamwork.epoch.history.values import Count, Result, Row, StateSize, Sum
from streamwork.epoch.in_doubt import InDoubt

T = TypeVar("T")


def rows(path: Path, last: int, before: int | None = None, outcome: Result | None = None) -> Sequence[Row]:
    """The newest rows, newest first; none if there is no history, or none that can be read. Optional: only those of epochs
    before one, or with one outcome.
    """
    given = {"epoch < ?": before, "outcome = ?": None if outcome is None else outcome.value}
    wanted = {term: value for term, value in given.items() if value is not None}
    where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
    order = "ORDER BY epoch DESC, fence DESC, rowid DESC LIMIT ?"
    return _rows(_query(path, f"SELECT {NAMES} FROM epochs{where} {order}", (*wanted.values(), last)))


def rows_of(path: Path, epoch: int) -> Sequence[Row]:
    """The rows of one epoch: one for each outcome that it had, the newest first."""
    return _rows(_query(path, f"SELECT {NAMES} FROM epochs WHERE epoch = ? ORDER BY fence DESC, rowid DESC", (epoch,)))


def number_of_rows(path: Path) -> int:
    found = _query(path, "SELECT count(*) FROM epochs")
    return int(str(found[0][0])) if found else 0


def counts(path: Path, epoch: int) -> list[Count]:
    """What was counted in one epoch, by instance."""
    return _counts(_query(path, f"{_counted(path, 'counts')} WHERE epoch = ?", (epoch,)))


def totals(path: Path) -> list[Count]:
    """What was counted since the history was created, by outcome and by instance."""
    return _counts(_query(path, _counted(path, "totals")))


def outcomes(path: Path) -> list[Sum]:
    """The number of epochs of each outcome since the history was created."""
    steps = ", ".join(f'"{step}"' for step in STEPS)
    found = _query(path, f"SELECT outcome, epochs, {steps} FROM outcomes")
    try:
        return [
            msgspec.convert(
                {"outcome": outcome, "epochs": epochs, "seconds": dict(zip(STEPS, seconds, strict=True))}, Sum
            )
            for outcome, epochs, *seconds in found
        ]
    except msgspec.ValidationError:
        return []


def durations(path: Path) -> tuple[Durations, ...]:
    """How long steps and sinks took, since the history was created."""
    try:
        return tuple(read_durations(_query(path, DURATIONS)))
    except msgspec.ValidationError:
        return ()


def in_doubt(path: Path) -> list[InDoubt]:
    """The input in doubt since the history was created, oldest first."""
    return _all(path, InDoubt, f"SELECT {IN_DOUBT} FROM in_doubt ORDER BY epoch, source")


def input_ends(path: Path) -> list[InputEnd]:
    """Where the input of each source partition ended when a driver last read it."""
    return _all(path, InputEnd, f"SELECT {ENDS} FROM ends ORDER BY source, partition")


def samples(path: Path, since: float = 0.0) -> list[Sample]:
    """How much input each source had, and how much of it was read; oldest first."""
    return _all(path, Sample, f"SELECT {SAMPLES} FROM samples WHERE at >= ? ORDER BY at, source", since)


def state_sizes(path: Path) -> list[StateSize]:
    """The size of each component's state; oldest first."""
    return _all(path, StateSize, f"SELECT {STATES} FROM states ORDER BY at, component")


def recent_counts(path: Path, since: int) -> list[Count]:
    """What was counted by instance, summed over the epochs from this one on."""
    sums = ", ".join(f"sum({kind})" for kind in KINDS)
    found = _query(
        path,
        f"SELECT outcome, component, instance, {sums} FROM ({_counted(path, 'counts')} WHERE epoch >= ?) "
        "GROUP BY outcome, component, instance",
        (since,),
    )
    return _counts(found)


def _all(path: Path, kind: type[T], query: str, *values: object) -> list[T]:
    """The rows of a table whose columns are the fields of `kind`; none if they cannot be read as such."""
    found = _query(path, query, values)
    try:
        if kind.__struct_config__.array_like:  # type: ignore[attr-defined]
            return msgspec.convert(found, list[kind])  # type: ignore[valid-type]
        names = [field.name for field in msgspec.structs.fields(kind)]  # type: ignore[arg-type]
        return [msgspec.convert(dict(zip(names, row, strict=True)), kind) for row in found]
    except msgspec.ValidationError:
        return []


def _counted(path: Path, table: str) -> str:
    """The query for what was counted. What an earlier version did not count is 0."""
    known = {name for _, name, *_ in _query(path, f"PRAGMA table_info({table})")}
    kinds = ", ".join(kind if kind in known else f"0 AS {kind}" for kind in KINDS)
    return f"SELECT outcome, component, instance, {kinds} FROM {table}"


class _Shared(threading.local):
    """The connection that questions of this thread share, inside `at_once`."""

    path: Path | None = None
    db: sqlite3.Connection | None = None


_shared = _Shared()


@contextlib.contextmanager
def at_once(path: Path) -> Iterator[None]:
    """Several questions about one history, in this thread: they share a connection, so that the file is opened once."""
    if _shared.path is not None:  # the outer block's
        yield
        return
    try:
        _shared.path, _shared.db = path, _connected(path)
    except sqlite3.Error:
        _shared.db = None
    try:
        yield
    finally:
        if _shared.db is not None:
            _shared.db.close()
        _shared.path = _shared.db = None


def _connected(path: Path) -> sqlite3.Connection | None:
    if not path.exists():
        return None
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1)


def _query(path: Path, query: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    try:
        if _shared.db is not None and _shared.path == path:
            return _shared.db.execute(query, values).fetchall()
        db = _connected(path)
        if db is None:
            return []
        with contextlib.closing(db):
            return db.execute(query, values).fetchall()
    except sqlite3.Error:
        return []


def _rows(found: Iterable[tuple[object, ...]]) -> list[Row]:
    try:
        return [_row(dict(zip(COLUMNS, values, strict=True))) for values in found]
    except msgspec.ValidationError:
        return []


def _row(values: dict[str, object]) -> Row:
    return msgspec.convert({**values, "seconds": {step: values[step] for step in STEPS}}, Row)


def _counts(found: Iterable[tuple[object, ...]]) -> list[Count]:
    names = Counts.__struct_fields__
    try:
        return [
            msgspec.convert({"outcome": outcome, "counts": dict(zip(names, values, strict=True))}, Count)
            for outcome, *values in found
        ]
    except msgspec.ValidationError:
        return []
