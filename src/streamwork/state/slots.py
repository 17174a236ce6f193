"""Records as numpy columns: every key has a slot, which is its place in each of them.

An operator that works on whole columns has its state like this from epoch to epoch. Python code runs once per key and
batch, to find the slot; no record is made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Record
from streamwork.components.batches import halving
from streamwork.components.columns import to_batches, to_structs
from streamwork.components.field_types import Misfit
from streamwork.components.keyed_columns import column_type, to_arrow, to_numpy
from streamwork.components.schema import arrow_schema, fields_of

Array = np.ndarray[Any, Any]
UNKNOWN = -1
FIRST_CAPACITY = 1_024


class Slots:
    def __init__(self, record: type[Record]) -> None:
        self.record = record
        self.places: dict[Any, int] = {}
        self._keys: list[Any] = []  # by slot
        self.columns: dict[str, Array] = {
            name: np.empty(0, column_type(field)) for name, field in fields_of(record).items()
        }
        self.changed = np.empty(0, bool)
        self._defaults = self._columns_of([record()])

    def __len__(self) -> int:
        return len(self.places)

    def place(self, keys: Sequence[Any]) -> tuple[Array, Array]:
        """(slot of each key, places in `keys` of those that had none). New ones hold defaults. A key may come once only."""
        slots = np.fromiter(map(self.places.get, keys, repeat(UNKNOWN)), np.int64, len(keys))
        new = np.flatnonzero(slots == UNKNOWN)
        if len(new):
            start, end = len(self.places), len(self.places) + len(new)
            fresh = keys if len(new) == len(keys) else [keys[place] for place in new.tolist()]
            self.places.update(zip(fresh, range(start, end), strict=True))
            self._keys += fresh
            self._make_room(end)
            for name, column in self.columns.items():
                column[start:end] = self._defaults[name][0]
            self.changed[start:end] = False
            slots[new] = np.arange(start, end)
        return slots, new

    def put_records(self, slots: Array, records: Sequence[Record]) -> None:
        for name, values in self._columns_of(records).items():
            self.columns[name][slots] = values

    def put_rows(self, slots: Array, rows: pa.Table) -> None:
        """Rows that have (at least) the columns of the record."""
        start = 0
        for batch in rows.to_batches():
            mine = slots[start : start + batch.num_rows]
            for name, field in fields_of(self.record).items():
                self.columns[name][mine] = to_numpy(field, batch.column(name))
            start += batch.num_rows

    def keys(self, slots: Array) -> list[Any]:
        return list(map(self._keys.__getitem__, slots.tolist()))

    def column(self, name: str, slots: Array) -> pa.Array:
        """Checked, for files. Raises Misfit, with the field in `path`."""
        try:
            return to_arrow(fields_of(self.record)[name], self.columns[name][slots])
        except Misfit as misfit:
            raise type(misfit)(misfit.value, misfit.expected, name) from None

    def records(self) -> list[Any]:
        """One for each key, in the order of slots."""
        schema = arrow_schema(self.record)
        if not schema.names:
            return [self.record() for _ in range(len(self))]

        def some(slots: Array) -> list[Any]:
            columns = [self.column(name, slots) for name in schema.names]
            return to_structs(self.record, pa.RecordBatch.from_arrays(columns, schema=schema))

        return [record for records in halving(some, np.arange(len(self))) for record in records]

    def bytes_each(self) -> int:
        """About how much memory a key takes, by the size of a few."""
        sample = list(islice(self.places.items(), 50))
        if not sample:
            return 1
        kept = [column[slot] for column in self.columns.values() if column.dtype == object for _, slot in sample]
        values = sum(map(sys.getsizeof, (key for key, _ in sample))) + sum(map(sys.getsizeof, kept))
        return 120 + 8 * len(self.columns) + values // len(sample)

    def _columns_of(self, records: Sequence[Record]) -> dict[str, Array]:
        batches = to_batches(self.record, records, self.record.__name__)
        return {
            name: np.concatenate([to_numpy(field, batch.column(name)) for batch in batches])
            for name, field in fields_of(self.record).items()
        }

    def _make_room(self, size: int) -> None:
        if size <= len(self.changed):
            return
        capacity = max(size, FIRST_CAPACITY, 2 * len(self.changed))
        self.columns = {name: _longer(column, capacity) for name, column in self.columns.items()}
        self.changed = _longer(self.changed, capacity)


def _longer(values: Array, size: int) -> Array:
    longer = np.empty(size, values.dtype)
    longer[: len(values)] = values
    return longer
