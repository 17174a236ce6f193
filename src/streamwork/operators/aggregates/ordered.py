"""first, last and collect: what depends on the order in which events arrive. Nulls are values, as in SQL.

Parts of fixed windows are merged in the order of their events. Parts of sessions may have events of the same period: there each
value is kept with a number that grows from event to event. Who merges parts of several batches renumbers those that come later
(`renumbered`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.field_types import FieldType
from streamwork.operators.aggregates.base import ColumnAggregate, Unbound, operand, optional
from streamwork.operators.aggregates.columns import Array, Groups, Parts, chosen, paired, take, taken

ORDER = "__order"
"""The column of a batch that numbers its events, where parts are interleaved."""


@dataclass(frozen=True)
class End(Unbound):
    """The value of a field in the first or the last event."""

    field: str
    last: bool

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        annotation, found = operand(event, self.field, f"{'last' if self.last else 'first'}_of({self.field!r})")
        return _Ends(name, self.field, annotation, found, self.last, interleaved)


class _Ends(ColumnAggregate):
    depends_on_order = True

    def __init__(self, name: str, field: str, annotation: Any, found: FieldType, last: bool, interleaved: bool) -> None:
        self.name, self._field, self._found, self._last = name, field, found, last
        self.order = f"{name}_order" if interleaved else None
        self.result_type = annotation
        self.columns = {name: (optional(annotation), None)}
        if self.order is not None:
            self.columns = {**self.columns, self.order: (int, 0)}

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        parts = {self.name: batch.column(self._field)}
        if self.order is not None:
            parts[self.order] = batch.column(ORDER).to_numpy()
        return take(parts, groups.lasts if self._last else groups.firsts)

    def merge(self, left: Parts, right: Parts) -> Parts:
        if self.order is None:
            return {self.name: (right if self._last else left)[self.name]}
        is_left = (left[self.order] < right[self.order]) != self._last
        return {name: chosen(is_left, left[name], right[name]) for name in self.columns}

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        if self.order is not None:
            return super().combine(parts, groups)
        return take({self.name: parts[self.name]}, groups.lasts if self._last else groups.firsts)

    def result(self, parts: Parts) -> pa.Array:
        return parts[self.name]


@dataclass(frozen=True)
class Collect(Unbound):
    """All values of a field, as a list."""

    field: str

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        annotation, found = operand(event, self.field, f"collect_of({self.field!r})")
        return _Lists(name, self.field, annotation, found, interleaved)


class _Lists(ColumnAggregate):
    depends_on_order = True

    def __init__(self, name: str, field: str, annotation: Any, found: FieldType, interleaved: bool) -> None:
        self.name, self._field, self._found = name, field, found
        self.order = f"{name}_order" if interleaved else None
        self.result_type = list[annotation]
        self.columns = {name: (optional(list[annotation]), None)}
        if self.order is not None:
            self.columns = {**self.columns, self.order: (optional(list[int]), None)}

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        ends = np.append(groups.starts, len(groups.codes))
        parts = {self.name: self._listed(ends, batch.column(self._field).take(pa.array(groups.order)))}
        if self.order is not None:
            parts[self.order] = self._listed(ends, batch.column(ORDER).take(pa.array(groups.order)), self.order)
        return parts

    def merge(self, left: Parts, right: Parts) -> Parts:
        return self.combine(*paired(left, right))

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        sorted_parts = take(parts, groups.order)
        lists = sorted_parts[self.name]
        ends = ends_of_groups(lists, groups)
        if self.order is None:
            return {self.name: self._listed(ends, lists.flatten())}
        numbers = sorted_parts[self.order].flatten()
        order = np.lexsort((numbers.to_numpy(), np.repeat(np.arange(groups.count), np.diff(ends))))
        return {
            self.name: self._listed(ends, taken(lists.flatten(), order)),
            self.order: self._listed(ends, taken(numbers, order), self.order),
        }

    def _listed(self, ends: Array, values: pa.Array, name: str | None = None) -> pa.Array:
        return pa.ListArray.from_arrays(
            pa.array(ends.astype(np.int32)), values, type=self.fields[name or self.name].arrow
        )

    def result(self, parts: Parts) -> pa.Array:
        return parts[self.name].cast(self.result_field.arrow)


def ends_of_groups(lists: pa.Array, groups: Groups) -> Array:
    """The offsets of lists that join those of each group; `lists` are in the order of groups."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    total = np.concatenate(([0], np.cumsum(lengths)))
    return np.asarray(total[np.append(groups.starts, len(lengths))])


def highest_order(parts: Parts, aggregates: Iterable[ColumnAggregate]) -> Array | None:
    """The largest number of each row; None if no aggregate keeps an order."""
    found: Array | None = None
    for one in aggregates:
        if one.order is not None:
            column = parts[one.order]
            mine = _last_of_lists(column) if isinstance(column, pa.Array) else column
            found = mine if found is None else np.maximum(found, mine)
    return found


def renumbered(parts: Parts, aggregates: Iterable[ColumnAggregate], added: Array) -> Parts:
    """The same parts, with a number added to the order of each row."""
    changed = dict(parts)
    for one in aggregates:
        if one.order is not None:
            column = parts[one.order]
            if isinstance(column, pa.Array):
                each = np.repeat(added, column.value_lengths().to_numpy())
                numbers = pa.array(column.flatten().to_numpy() + each)
                changed[one.order] = pa.ListArray.from_arrays(_offsets(column), numbers, type=column.type)
            else:
                changed[one.order] = column + added
    return changed


def _offsets(lists: pa.Array) -> pa.Array:
    ends = np.concatenate(([0], np.cumsum(lists.value_lengths().to_numpy())))
    return pa.array(ends.astype(np.int32))


def _last_of_lists(lists: pa.Array) -> Array:
    """The last item of each list: none of them is empty."""
    return np.asarray(lists.flatten().to_numpy()[_offsets(lists).to_numpy()[1:] - 1])
