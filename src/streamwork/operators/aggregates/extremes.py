"""min and max. Nulls are left out, as in SQL; NaN is larger than every number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Event
from streamwork.components.field_types import FieldType
from streamwork.operators.aggregates.base import ColumnAggregate, Unbound, operand, optional, unfit
from streamwork.operators.aggregates.columns import (
    Array,
    Groups,
    Parts,
    column_of,
    paired,
    taken,
)

_DEFAULTS: dict[pa.DataType, Any] = {pa.int64(): 0, pa.float64(): 0.0, pa.bool_(): False}


@dataclass(frozen=True)
class Extreme(Unbound):
    """The smallest or the largest value of a field."""

    field: str
    largest: bool

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        what = f"{'max' if self.largest else 'min'}_of({self.field!r})"
        annotation, found = operand(event, self.field, what)
        if found.arrow.num_fields:
            raise unfit(event, self.field, what, "int, float, Decimal, str, bytes, bool, date or datetime")
        if found.arrow in (pa.int64(), pa.float64()) and not found.nullable:
            return _Numbers(name, self.field, annotation, found, self.largest)
        return _Values(name, self.field, annotation, found, self.largest)


class _Numbers(ColumnAggregate):
    """Of a field of numbers that is never null."""

    def __init__(self, name: str, field: str, annotation: Any, found: FieldType, largest: bool) -> None:
        self.name, self._field, self._found = name, field, found
        self.result_type = annotation
        self.columns = {name: (annotation, _DEFAULTS[found.arrow])}
        # Of floats, maximum prefers NaN, and fmin any number to NaN.
        self._choose: np.ufunc = np.maximum if largest else np.fmin

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        return self.combine({self.name: column_of(self._found, batch.column(self._field))}, groups)

    def merge(self, left: Parts, right: Parts) -> Parts:
        return {self.name: self._choose(left[self.name], right[self.name])}

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        numbers = parts[self.name]
        best = taken(numbers, groups.firsts)
        with np.errstate(invalid="ignore"):  # NaN is a value
            self._choose.at(best, groups.codes, numbers)
        return {self.name: best}

    def result(self, parts: Parts) -> pa.Array:
        return pa.array(parts[self.name], self._found.arrow)


class _Values(ColumnAggregate):
    """Of any type that has an order. Values are compared by their rank in the batch."""

    def __init__(self, name: str, field: str, annotation: Any, found: FieldType, largest: bool) -> None:
        self.name, self._field, self._found, self._largest = name, field, found, largest
        self.result_type = annotation
        self.columns = {name: (optional(annotation), None)}

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        return self.combine({self.name: batch.column(self._field)}, groups)

    def merge(self, left: Parts, right: Parts) -> Parts:
        return self.combine(*paired(left, right))

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        values = parts[self.name]
        ranks = _ranks(values, self._largest)
        best = np.full(groups.count, len(ranks), np.int64)
        np.minimum.at(best, groups.codes, ranks)
        rows = np.empty(len(ranks), np.int64)
        rows[ranks] = np.arange(len(ranks))
        return {self.name: taken(values, rows[best])}

    def result(self, parts: Parts) -> pa.Array:
        return parts[self.name]


def _ranks(values: pa.Array, largest: bool) -> Array:
    """The place of each value in the order of preference; nulls come last."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    order = "descending" if largest else "ascending"
    if pa.types.is_floating(values.type) and values.null_count < len(values):  # Arrow sorts NaN behind all numbers
        nan = pc.is_nan(values).fill_null(False).to_numpy(zero_copy_only=False)
        numbers = np.where(nan, np.inf, values.fill_null(0.0).to_numpy(zero_copy_only=False))
        null = values.is_null().to_numpy(zero_copy_only=False)
        keys = (-numbers, ~nan, null) if largest else (numbers, nan, null)
        sorted_rows = np.lexsort(keys)
    else:
        sorted_rows = pc.array_sort_indices(values, order=order).to_numpy()
    ranks = np.empty(len(values), np.int64)
    ranks[sorted_rows] = np.arange(len(values))
    return ranks
