"""Places of keys: each distinct row of the key columns has one, found by a hash index. No Python object is made of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.field_types import FieldType
from streamwork.components.hashing import combined
from streamwork.state.key_index import KeyIndex
from streamwork.state.table_columns import Column, column_of
from streamwork.state.text_column import TextColumn

Array = np.ndarray[Any, Any]
Rehash = Callable[[Array], Array]
_FIRST_ROOM = 64


class KeyPlaces:
    """Nulls are equal to each other. A place that is removed is used again."""

    def __init__(self, fields: Mapping[str, FieldType], rehash: Rehash | None = None) -> None:
        """`rehash` replaces hashes, for tests."""
        self.columns = {name: _key_column(field) for name, field in fields.items()}
        self.alive = np.empty(0, bool)
        """By place."""
        self._types = {name: field.arrow for name, field in fields.items()}
        self._rehash = rehash
        self._index = KeyIndex()
        self._free = np.empty(0, np.int64)
        self._end = 0  # no place from here on was ever used

    def __len__(self) -> int:
        return len(self._index)

    @property
    def room(self) -> int:
        """How many places there are, used or not."""
        return len(self.alive)

    def places(self) -> Array:
        return np.flatnonzero(self.alive[: self._end])

    def find(self, keys: pa.RecordBatch) -> Array:
        """The place of each row; -1 where there is none."""
        return Asked(self, keys).find()

    def place(self, keys: pa.RecordBatch) -> tuple[Array, Array]:
        """(the place of each row, the places that are new, in the order of their first rows)"""
        asked = Asked(self, keys)
        places = asked.find()
        missing = np.flatnonzero(places < 0)
        if not len(missing):
            return places, missing
        places[missing], new = asked.add(missing)
        return places, new

    def remove(self, places: Array) -> None:
        """Remove keys, each of which is there and comes once."""
        self._index.remove(places)
        self.alive[places] = False
        self._free = np.concatenate([self._free, places[::-1]])

    def keys(self, places: Array) -> pa.RecordBatch:
        columns = [column.take(places) for column in self.columns.values()]
        fields = [pa.field(name, kind, self.columns[name].field.nullable) for name, kind in self._types.items()]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _new(self, count: int) -> Array:
        """Places that are not in use."""
        again = self._free[len(self._free) - min(count, len(self._free)) :][::-1]
        self._free = self._free[: len(self._free) - len(again)]
        fresh = np.arange(self._end, self._end + count - len(again))
        self._end += len(fresh)
        if self._end > self.room:
            size = max(self._end, 2 * self.room, _FIRST_ROOM)
            self.alive = np.concatenate([self.alive, np.zeros(size - self.room, bool)])
            for column in self.columns.values():
                column.make_room(size)
        places = np.concatenate([again, fresh])
        self.alive[places] = True
        return places


def _key_column(field: FieldType) -> Column:
    is_text = pa.types.is_string(field.arrow) or pa.types.is_binary(field.arrow)
    return TextColumn(field) if is_text else column_of(field)


class Asked:
    """Keys of one batch, with their hashes."""

    def __init__(self, of: KeyPlaces, keys: pa.RecordBatch) -> None:
        self._of = of
        columns = [
            column if column.type == kind else column.cast(kind)
            for column, kind in ((keys.column(name), kind) for name, kind in of._types.items())
        ]
        self._columns: list[tuple[Any, Any]] = [
            (mine, mine.given(column)) for mine, column in zip(of.columns.values(), columns, strict=True)
        ]
        self._hashes = combined([mine.hashes(given) for mine, given in self._columns], keys.num_rows)
        if of._rehash is not None:
            self._hashes = of._rehash(self._hashes)

    def find(self) -> Array:
        return self._of._index.find(self._hashes, self._same)

    def add(self, rows: Array) -> tuple[Array, Array]:
        """Add the keys of rows that `find` has not found: (their places, the new places)."""

        def twins(some: Array, others: Array) -> Array:
            return self._all(mine.twins(given, rows[some], rows[others]) for mine, given in self._columns)

        places, first = self._of._index.add(self._hashes[rows], twins, self._of._new)
        new, rows = places[first], rows[first]
        for mine, given in self._columns:
            mine.put(new, mine.rows(given, rows))
            mine.tidy(len(self._of), self._of.places)
        return places, new

    def _same(self, rows: Array | None, places: Array) -> Array:
        return self._all(mine.same(places, given, rows) for mine, given in self._columns)

    @staticmethod
    def _all(found: Any) -> Array:
        equal = next(found)
        for one in found:
            equal = equal & one
        return np.asarray(equal)
