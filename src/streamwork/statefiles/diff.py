"""Compares two sets of rows by key, and the states of two points, component by component.

Two values are equal if they are the same value of one type: nulls are equal, NaN is equal to NaN, and the order of a dict does not
matter. The checkpoint that wrote a row, and its key group, are not compared; timers are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components.batches import compacted
from streamwork.components.hashing import hash_columns
from streamwork.state.layer import Layer
from streamwork.statefiles.component_state import ComponentState, in_order, picked
from streamwork.statefiles.plain_values import plain_rows
from streamwork.statefiles.point import StatePoint

Array = np.ndarray[Any, Any]
TIMERS = "__timers"
PIECE = 8_192
EXAMPLES = 5


class Change(Enum):
    ADDED = "added"
    GONE = "gone"
    CHANGED = "changed"


class RowChange(msgspec.Struct, frozen=True):
    """A key whose rows differ. The row before is null if it was added, the row after if it is gone."""

    change: Change
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    fields: tuple[str, ...] = ()  # that differ


@dataclass(frozen=True)
class RowDiff:
    """The differences of two tables whose rows are identified by the columns `key`."""

    before: pa.Table
    after: pa.Table
    key: tuple[str, ...]
    values: tuple[str, ...]  # columns that are compared

    @cached_property
    def _pairs(self) -> tuple[Array, Array]:
        """(rows before, rows after) that have the same key."""
        if not (self.before.num_rows and self.after.num_rows):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        keys = _hashable(self.after, self.key)
        layer = Layer(_hashable(self.before, self.key), self.key)
        mine: list[Array] = []
        theirs: list[Array] = []
        start = 0
        for batch in keys.to_batches():
            asked, rows = layer.find(hash_columns(batch.columns, batch.num_rows), batch)
            mine.append(rows.astype(np.int64))
            theirs.append(asked.astype(np.int64) + start)
            start += batch.num_rows
        return np.concatenate(mine), np.concatenate(theirs)

    @cached_property
    def added(self) -> pa.Table:
        return _without(self.after, self._pairs[1])

    @cached_property
    def gone(self) -> pa.Table:
        return _without(self.before, self._pairs[0])

    @cached_property
    def _unequal(self) -> dict[str, Array]:
        """Column -> for each pair, whether its values differ."""
        mine, theirs = self._pairs
        before, after = picked(self.before, mine), picked(self.after, theirs)
        return {name: ~same(before.column(name), after.column(name)) for name in self.values}

    @cached_property
    def _changed(self) -> Array:
        """The pairs that differ."""
        mine, _ = self._pairs
        found = np.zeros(len(mine), bool)
        for unequal in self._unequal.values():
            found |= unequal
        return np.flatnonzero(found)

    @property
    def changed(self) -> int:
        return len(self._changed)

    @property
    def same(self) -> int:
        return len(self._pairs[0]) - self.changed

    @property
    def fields(self) -> dict[str, int]:
        """Column -> in how many rows it differs, of those that differ somewhere."""
        counts = {name: int(unequal.sum()) for name, unequal in self._unequal.items()}
        return {name: count for name, count in counts.items() if count}

    def changes(self, limit: int | None = None) -> Iterator[RowChange]:
        """The rows that differ: changed ones, then those that are gone, then those that were added; each in the order of keys.
        With a limit, so many of each kind.
        """
        mine, theirs = self._pairs
        pairs = self._changed
        if len(pairs):
            ordered = in_order(picked(self.before, mine[pairs]).append_column("__pair", pa.array(pairs)), self.key)
            pairs = np.asarray(ordered.column("__pair"))[:limit]
        before, after = picked(self.before, mine[pairs]), picked(self.after, theirs[pairs])
        for pair, old, new in zip(pairs.tolist(), plain_rows(before), plain_rows(after), strict=True):
            names = tuple(name for name, unequal in self._unequal.items() if unequal[pair])
            yield RowChange(Change.CHANGED, self._key(old), self._value(old), self._value(new), names)
        for row in plain_rows(in_order(self.gone, self.key).slice(0, limit)):
            yield RowChange(Change.GONE, self._key(row), self._value(row), None)
        for row in plain_rows(in_order(self.added, self.key).slice(0, limit)):
            yield RowChange(Change.ADDED, self._key(row), None, self._value(row))

    def _key(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: row[name] for name in self.key}

    def _value(self, row: dict[str, Any]) -> dict[str, Any]:
        """Without timers if there are none."""
        return {name: value for name, value in row.items() if name not in self.key and (name != TIMERS or value)}


class Status(Enum):
    SAME = "same"
    CHANGED = "changed"
    ADDED = "added"  # the component
    GONE = "gone"
    REKEYED = "rekeyed"  # its key is another one, so that rows cannot be compared


class ComponentDiff(msgspec.Struct, frozen=True):
    component: str
    status: Status
    rows_before: int
    rows_after: int
    added: int = 0
    gone: int = 0
    changed: int = 0
    same: int = 0
    fields: dict[str, int] = {}  # that differ, and in how many rows
    schema: tuple[str, ...] = ()  # what is different about the columns
    examples: tuple[RowChange, ...] = ()


class StateDiff(msgspec.Struct, frozen=True):
    before: str
    after: str
    same: bool  # state alone: positions and parameters may differ
    components: tuple[ComponentDiff, ...]
    positions: dict[str, tuple[int | None, int | None]]  # that differ
    params: dict[str, tuple[Any, Any]]


def diff(before: StatePoint, after: StatePoint, limit: int | None = EXAMPLES, only: Sequence[str] = ()) -> StateDiff:
    """What is different in the state of all components, or of those named."""
    names = [*dict.fromkeys([*before.components, *after.components])]
    found = [diff_component(before, after, name, limit) for name in names if not only or name in only]
    return StateDiff(
        before.title,
        after.title,
        all(one.status is Status.SAME for one in found),
        tuple(found),
        _different(before.positions, after.positions),
        _different(before.params, after.params),
    )


def diff_component(before: StatePoint, after: StatePoint, component: str, limit: int | None) -> ComponentDiff:
    old, new = _state(before, component), _state(after, component)
    if old is None or new is None:
        had, has = 0 if old is None else len(old), 0 if new is None else len(new)
        return ComponentDiff(component, Status.ADDED if old is None else Status.GONE, had, has, added=has, gone=had)
    schema = schema_changes(old, new)
    rows = rows_of(old, new)
    if rows is None:
        return ComponentDiff(component, Status.REKEYED, len(old), len(new), len(new), len(old), schema=schema)
    return compared(component, rows, limit, schema)


def compared(component: str, rows: RowDiff, limit: int | None, schema: tuple[str, ...] = ()) -> ComponentDiff:
    """The differences of a component's rows. `schema` says what is different about its columns."""
    counts = {"added": rows.added.num_rows, "gone": rows.gone.num_rows, "changed": rows.changed, "same": rows.same}
    differs = schema or counts["added"] or counts["gone"] or counts["changed"]
    return ComponentDiff(
        component,
        Status.CHANGED if differs else Status.SAME,
        rows.before.num_rows,
        rows.after.num_rows,
        **counts,
        fields=rows.fields,
        schema=schema,
        examples=tuple(rows.changes(limit)),
    )


def _state(point: StatePoint, component: str) -> ComponentState | None:
    return ComponentState.of(point, component) if component in point.components else None


def rows_of(old: ComponentState, new: ComponentState) -> RowDiff | None:
    """The rows of both; None if they have different keys."""
    key = old.shape.identity
    if key != new.shape.identity:
        return None
    before, after = old.unordered, new.unordered
    if (
        before.num_rows
        and after.num_rows
        and any(before.schema.field(n).type != after.schema.field(n).type for n in key)
    ):
        return None
    common = [name for name in old.shape.record if name in new.shape.record]
    values = (*common, *([TIMERS] if TIMERS in before.column_names and TIMERS in after.column_names else []))
    return RowDiff(_only(before, old), _only(after, new), key, values)


def _only(table: pa.Table, state: ComponentState) -> pa.Table:
    return table.select([*state.shape.columns, *([TIMERS] if TIMERS in table.column_names else [])])


def schema_changes(old: ComponentState, new: ComponentState) -> tuple[str, ...]:
    """How the columns differ, as text."""
    found = []
    if old.shape.identity != new.shape.identity:
        found.append(f"the key was ({', '.join(old.shape.identity)}) and is ({', '.join(new.shape.identity)})")
    found += [f"{name} is gone" for name in old.shape.record if name not in new.shape.record]
    found += [f"{name} is new" for name in new.shape.record if name not in old.shape.record]
    before, after = old.unordered.schema, new.unordered.schema
    for name in old.shape.columns:
        if name not in new.shape.columns:
            continue
        was, now = before.field(name).type, after.field(name).type
        if was != now and pa.null() not in (was, now):
            found.append(f"{name} was {was} and is {now}")
    return tuple(found)


def same(before: pa.ChunkedArray, after: pa.ChunkedArray) -> Array:
    """For each pair of values, whether they are equal."""
    if not len(before):
        return np.ones(0, bool)
    if before.type == after.type and not before.type.num_fields:
        equal = pc.equal(before, after)
        if pa.types.is_floating(before.type):
            equal = pc.or_kleene(equal, pc.and_(pc.is_nan(before), pc.is_nan(after)))
        neither = pc.and_(before.is_null(), after.is_null())
        return np.asarray(pc.or_(equal.fill_null(False), neither))
    found = np.ones(len(before), bool)
    for start in range(0, len(before), PIECE):
        mine, theirs = before.slice(start, PIECE), after.slice(start, PIECE)
        if mine.type == theirs.type and mine.equals(theirs):
            continue
        pairs = zip(_values(mine), _values(theirs), strict=True)
        found[start : start + PIECE] = [_same(one, other) for one, other in pairs]
    return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist(maps_as_pydicts="lossy") if column.type.num_fields else column.to_pylist()
    return values


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _hashable(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """The key columns, in types that have hashes."""
    columns = {name: table.column(name) for name in key}
    return compacted(
        pa.table(
            {n: column.cast(pa.int64()) if pa.types.is_int32(column.type) else column for n, column in columns.items()}
        )
    )


def _without(table: pa.Table, rows: Array) -> pa.Table:
    left = np.ones(table.num_rows, bool)
    left[rows] = False
    return picked(table, np.flatnonzero(left))


def _different(before: Any, after: Any) -> dict[str, tuple[Any, Any]]:
    names = [*dict.fromkeys([*before, *after])]
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}
