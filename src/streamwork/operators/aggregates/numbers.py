"""count, sum and mean. Nulls are left out, as in SQL; a sum of nothing is null."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Digits, Event
from streamwork.components.field_types import FieldType
from streamwork.errors import JobFailed
from streamwork.operators.aggregates.base import ColumnAggregate, Unbound, operand, unfit
from streamwork.operators.aggregates.columns import (
    Array,
    Column,
    Groups,
    Parts,
    column_of,
    reduced,
    split,
    with_nulls,
)

_EXACT = float(1 << 53)
_WIDEST = 38  # digits of Arrow's decimals of 128 bits


@dataclass(frozen=True)
class Count(Unbound):
    """The number of events; of a field: of those where it is not null."""

    field: str | None = None

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        if self.field is not None:
            operand(event, self.field, f"count({self.field!r})")
        return _Counts(name, self.field)


class _Counts(ColumnAggregate):
    result_type = int

    def __init__(self, name: str, field: str | None) -> None:
        self.name, self._field = name, field
        self.columns = {name: (int, 0)}

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        column = None if self._field is None else batch.column(self._field)
        if column is None or not column.null_count:
            return {self.name: groups.sizes}
        return {self.name: np.bincount(groups.codes[_valid(column)], minlength=groups.count)}

    def merge(self, left: Parts, right: Parts) -> Parts:
        return {self.name: left[self.name] + right[self.name]}

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return {self.name: _sum_of_numbers(_numbers(parts[self.name]), groups, self.name)}

    def result(self, parts: Parts) -> pa.Array:
        return pa.array(_numbers(parts[self.name]), pa.int64())


@dataclass(frozen=True)
class Sum(Unbound):
    field: str

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        return _bound_sum(event, self.field, name, f"sum_of({self.field!r})")


def _bound_sum(event: type[Event], field: str, name: str, what: str) -> ColumnAggregate:
    annotation, found = operand(event, field, what)
    if pa.types.is_decimal(found.arrow):
        return _DecimalSums(name, field, found)
    if found.arrow not in (pa.int64(), pa.float64()):
        raise unfit(event, field, what, "int, float or Decimal")
    return _Sums(name, field, annotation, found)


class _Sums(ColumnAggregate):
    """Of int or float. A sum of ints beyond 64 bits is an error; it does not wrap."""

    def __init__(self, name: str, field: str, annotation: Any, found: FieldType) -> None:
        self.name, self._field, self._found = name, field, found
        self.result_type = annotation
        zero: Any = 0 if found.arrow == pa.int64() else 0.0
        self.columns = {name: (annotation, None if found.nullable else zero)}

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        return self._reduced(column_of(self._found, batch.column(self._field)), groups)

    def merge(self, left: Parts, right: Parts) -> Parts:
        (a, has_a), (b, has_b) = split(left[self.name]), split(right[self.name])
        total = _added(a, b, self.name)
        valid = None if has_a is None or has_b is None else has_a | has_b
        return {self.name: with_nulls(self._found, total, valid)}

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return self._reduced(parts[self.name], groups)

    def _reduced(self, column: Column, groups: Groups) -> Parts:
        numbers, valid = split(column)
        total = _sum_of_numbers(numbers, groups, self.name)
        if valid is not None:
            valid = np.bincount(groups.codes[valid], minlength=groups.count) > 0
        return {self.name: with_nulls(self._found, total, valid)}

    def result(self, parts: Parts) -> pa.Array:
        column = parts[self.name]
        return column if isinstance(column, pa.Array) else pa.array(column, self._found.arrow)


class _DecimalSums(ColumnAggregate):
    """Of Decimal: exact, with as many digits as Arrow has."""

    def __init__(self, name: str, field: str, found: FieldType) -> None:
        self.name, self._field, self._nullable = name, field, found.nullable
        self._arrow = pa.decimal128(_WIDEST, found.arrow.scale)
        kind: Any = Annotated[Decimal, Digits(_WIDEST, found.arrow.scale)]
        self.columns = {name: (kind | None, None)}
        self.result_type = kind | None if found.nullable else kind

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        column = batch.column(self._field)
        return self.combine({self.name: column.cast(self._arrow)}, groups)

    def merge(self, left: Parts, right: Parts) -> Parts:
        a, b = left[self.name], right[self.name]
        wide = pa.decimal256(_WIDEST + 2, self._arrow.scale)
        total = pc.add(pc.coalesce(a, b).cast(wide), pc.if_else(a.is_null(), None, b).fill_null(Decimal(0)).cast(wide))
        try:
            return {self.name: total.cast(self._arrow)}
        except pa.ArrowInvalid:
            raise _overflow(self.name, f"a Decimal of {_WIDEST} digits") from None

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        return reduced(parts, groups, self.merge)

    def result(self, parts: Parts) -> pa.Array:
        return parts[self.name]


@dataclass(frozen=True)
class Mean(Unbound):
    field: str

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        total = _bound_sum(event, self.field, f"{name}_sum", f"mean_of({self.field!r})")
        return _Means(name, total, _Counts(f"{name}_count", self.field))


class _Means(ColumnAggregate):
    """A sum and a count. The mean is a float."""

    def __init__(self, name: str, total: ColumnAggregate, count: ColumnAggregate) -> None:
        self.name, self._total, self._count = name, total, count
        self.columns = {**total.columns, **count.columns}
        self.result_type = float | None if total.result_field.nullable else float

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        return {**self._total.partial(batch, groups), **self._count.partial(batch, groups)}

    def merge(self, left: Parts, right: Parts) -> Parts:
        return {**self._total.merge(left, right), **self._count.merge(left, right)}

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        mine = {name: parts[name] for name in self._total.columns}
        return {**self._total.combine(mine, groups), **self._count.combine(parts, groups)}

    def result(self, parts: Parts) -> pa.Array:
        total, counts = self._total.result(parts).cast(pa.float64(), safe=False), _numbers(parts[self._count.name])
        return pc.divide(total, pa.array(np.maximum(counts, 1), pa.float64()))


def _numbers(column: Column) -> Array:
    return np.asarray(column)


def _valid(column: pa.Array) -> Array:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _sum_of_numbers(numbers: Array, groups: Groups, name: str) -> Array:
    """The sum of each group. Ints are added exactly."""
    if numbers.dtype != np.int64:
        return np.bincount(groups.codes, numbers, groups.count)
    if not len(numbers):
        return np.zeros(groups.count, np.int64)
    largest = max(abs(int(numbers.min())), abs(int(numbers.max())))
    if largest * len(numbers) < _EXACT:  # floats hold every sum exactly
        return np.bincount(groups.codes, numbers, groups.count).astype(np.int64)
    if len(numbers) >= 1 << 21:  # more would not be exact below
        return _numbers(reduced({name: numbers}, groups, lambda a, b: _merged(a, b, name))[name])
    low = np.bincount(groups.codes, numbers & 0xFFFFFFFF, groups.count)
    high = np.bincount(groups.codes, numbers >> 32, groups.count).astype(np.int64)
    low_part = low.astype(np.int64)
    high += low_part >> 32
    if len(high) and (high.max() > 0x7FFFFFFF or high.min() < -0x80000000):
        raise _overflow(name, "an int of 64 bits")
    return (high << 32) | (low_part & 0xFFFFFFFF)


def _merged(left: Parts, right: Parts, name: str) -> Parts:
    return {name: _added(_numbers(left[name]), _numbers(right[name]), name)}


def _added(left: Array, right: Array, name: str) -> Array:
    total: Array = left + right
    if total.dtype == np.int64 and bool((((left ^ total) & (right ^ total)) < 0).any()):
        raise _overflow(name, "an int of 64 bits")
    return total


def _overflow(name: str, limit: str) -> JobFailed:
    return JobFailed(
        "SW-WINDOW-OVERFLOW",
        f"the sum {name!r} of a window does not fit into {limit}",
        "add up floats, or Decimals with fewer digits; or use shorter windows",
        retryable=False,
        about_one_event=True,
    )
