"""The number of distinct values: exact. The state holds the values. Nulls are left out, as in SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Event
from streamwork.components.field_types import FieldType
from streamwork.operators.aggregates.base import ColumnAggregate, Unbound, operand, optional, unfit
from streamwork.operators.aggregates.columns import Array, Groups, Parts, paired, take
from streamwork.operators.aggregates.ordered import ends_of_groups

SCALARS = "int, float, Decimal, str, bytes, bool, date or datetime"


@dataclass(frozen=True)
class Distinct(Unbound):
    field: str

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        what = f"distinct_of({self.field!r})"
        annotation, found = operand(event, self.field, what)
        if found.arrow.num_fields:
            raise unfit(event, self.field, what, SCALARS)
        return _DistinctValues(name, self.field, annotation, found)


class _DistinctValues(ColumnAggregate):
    result_type = int

    def __init__(self, name: str, field: str, annotation: Any, found: FieldType) -> None:
        self.name, self._field, self._found = name, field, found
        self.columns = {name: (optional(list[annotation]), None)}

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        return {self.name: self._listed(*distinct_values(batch.column(self._field), groups.codes), groups.count)}

    def merge(self, left: Parts, right: Parts) -> Parts:
        return self.combine(*paired(left, right))

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        lists = take(parts, groups.order)[self.name]
        codes = np.repeat(np.arange(groups.count), np.diff(ends_of_groups(lists, groups)))
        return {self.name: self._listed(*distinct_values(lists.flatten(), codes), groups.count)}

    def _listed(self, values: pa.Array, codes: Array, count: int) -> pa.Array:
        ends = np.searchsorted(codes, np.arange(count + 1))
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), values, type=self.fields[self.name].arrow)

    def result(self, parts: Parts) -> pa.Array:
        return parts[self.name].value_lengths().fill_null(0).cast(pa.int64())


def distinct_values(values: pa.Array, codes: Array) -> tuple[pa.Array, Array]:
    """(the distinct values of each group, which are not null; their groups, in ascending order)"""
    if values.null_count:
        codes, values = codes[values.is_valid().to_numpy(zero_copy_only=False)], values.drop_null()
    if pa.types.is_floating(values.type):
        values = pc.add(values, 0.0)  # -0.0 is 0.0
    encoded = values.dictionary_encode()
    pairs = codes.astype(np.int64) * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy()
    _, rows = np.unique(pairs, return_index=True)
    return values.take(pa.array(rows)), codes[rows]
