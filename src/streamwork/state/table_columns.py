"""The columns of a table in memory: one value per place."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import batches
from streamwork.components.field_types import FieldType
from streamwork.components.hashing import hash_column
from streamwork.components.keyed_columns import column_type, to_arrow, to_numpy

Array = np.ndarray[Any, Any]
FEW = 20
"""If at least one value of so many is taken, all chunks become one first."""
SMALL = 1_024
"""Values that are not worth a chunk of their own, or a compaction."""


class NumpyColumn:
    """Int, float, bool or datetime, none of them null but datetimes; or Python objects (`components.keyed_columns`)."""

    def __init__(self, field: FieldType, dtype: np.dtype[Any], default: pa.Array | None) -> None:
        self.field = field
        self._values = np.empty(0, dtype)
        self._default = np.zeros(1, dtype)[0] if default is None else self.given(default)[0]

    def given(self, values: Any) -> Array:
        """Values from outside, as this column compares and stores them."""
        if not isinstance(values, np.ndarray):
            if values.null_count and not self.field.nullable:
                raise ValueError(f"{self.field.name} cannot be null")
            if self._values.dtype.hasobject:
                return to_numpy(self.field, values)
            values = values.to_numpy(zero_copy_only=False)
        return np.asarray(values.astype(self._values.dtype, copy=False))

    def hashes(self, given: Array) -> Array:
        return given.astype(np.int64, copy=False).view(np.uint64)

    def rows(self, given: Array, rows: Array) -> Array:
        return np.asarray(given[rows])

    def same(self, places: Array, given: Array, rows: Array | None) -> Array:
        """For each pair, True if the value at the place is that of the row of `given`, of which None is all."""
        theirs = _comparable(given)
        return np.asarray(_comparable(self._values).take(places) == (theirs if rows is None else theirs.take(rows)))

    def twins(self, given: Array, rows: Array, others: Array) -> Array:
        comparable = _comparable(given)
        return np.asarray(comparable[rows] == comparable[others])

    def take(self, places: Array) -> pa.Array:
        return to_arrow(self.field, self.numbers(places))

    def numbers(self, places: Array) -> Array:
        return self._values.take(places)  # faster than an index

    @property
    def all_numbers(self) -> Array:
        """By place; of places that hold no row, any value."""
        return self._values

    def put(self, places: Array, given: Array) -> None:
        self._values[places] = given

    def reset(self, places: Array) -> None:
        """Store the default."""
        self._values[places] = self._default

    def make_room(self, size: int) -> None:
        self._values = longer(self._values, size)

    def tidy(self, alive: int, places: Any) -> None:
        """Nothing to do: a value has one place."""

    def bytes_each(self, alive: int) -> int:
        """About how many bytes a value takes; of objects, by the size of a few."""
        some: list[Any] = self._values[: min(alive, 50)].tolist() if self._values.dtype.hasobject else []
        return int(self._values.itemsize) + sum(map(sys.getsizeof, some)) // max(len(some), 1)


class ArrowColumn:
    """All other types, and nulls: values are appended to Arrow arrays, and a place has the number of its value.

    A value that was replaced is garbage until `tidy` compacts.
    """

    def __init__(self, field: FieldType, default: pa.Array | None) -> None:
        self.field = field
        self._default = pa.nulls(1, field.arrow) if default is None else default
        self._chunks = [self._default]  # value 0 is the default
        self._count = 1
        self._numbers = np.empty(0, np.int64)  # by place: the number of its value

    def given(self, values: Any) -> pa.Array:
        """Values from outside, as this column compares and stores them."""
        if isinstance(values, np.ndarray):
            values = pa.array(values, self.field.arrow, from_pandas=False)
        if isinstance(values, pa.ChunkedArray):
            values = batches.one_array(values.chunks, values.type)
        if values.type != self.field.arrow:
            values = values.cast(self.field.arrow)
        if values.null_count and not self.field.nullable:
            raise ValueError(f"{self.field.name} cannot be null")
        return values

    def hashes(self, given: pa.Array) -> Array:
        return hash_column(given)

    def rows(self, given: pa.Array, rows: Array) -> pa.Array:
        return given.take(pa.array(rows))

    def same(self, places: Array, given: pa.Array, rows: Array | None) -> Array:
        """For each pair, True if the value at the place is that of the row of `given`, of which None is all."""
        return equal(self.take(places), given if rows is None else given.take(pa.array(rows)))

    def twins(self, given: pa.Array, rows: Array, others: Array) -> Array:
        return equal(given.take(pa.array(rows)), given.take(pa.array(others)))

    def take(self, places: Array) -> pa.Array:
        """Raises Oversized."""
        numbers = self._numbers[places]
        if len(self._chunks) > 1 and len(numbers) * FEW > self._count:
            self._chunks = batches.few_arrays(self._chunks)
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(numbers))
        ends = np.cumsum([len(chunk) for chunk in self._chunks])
        chunk_of = np.searchsorted(ends, numbers, "right")
        order = np.argsort(chunk_of, kind="stable")
        counts, numbers = np.bincount(chunk_of, minlength=len(ends)).tolist(), numbers[order]
        pieces, start = [], 0
        for chunk, end, count in zip(self._chunks, ends.tolist(), counts, strict=True):
            if count:
                pieces.append(chunk.take(pa.array(numbers[start : start + count] - (end - len(chunk)))))
                start += count
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return batches.one_array(pieces, self.field.arrow).take(pa.array(back))

    def put(self, places: Array, given: pa.Array) -> None:
        self._numbers[places] = np.arange(self._count, self._count + len(given))
        self._append(given)

    def reset(self, places: Array) -> None:
        """Store the default."""
        self._numbers[places] = 0

    def make_room(self, size: int) -> None:
        self._numbers = longer(self._numbers, size)

    def tidy(self, alive: int, places: Any) -> None:
        """Compact if more than half is garbage. `alive` is how many rows there are, `places()` are their places."""
        if self._count <= 2 * alive + SMALL:
            return
        kept = places()
        kept = kept[self._numbers[kept] > 0]
        old = [self.take(some) for some in np.array_split(kept, len(self._chunks))]
        self._chunks, self._count = [self._default], 1
        self._numbers[kept] = np.arange(1, 1 + len(kept))
        for values in old:
            self._append(values)

    def bytes_each(self, alive: int) -> int:
        return 8 + int(sum(chunk.nbytes for chunk in self._chunks)) // max(alive, 1)

    def _append(self, values: pa.Array) -> None:
        """Add a chunk. Neighbours of similar sizes become one, so there are few."""
        if not len(values):
            return
        self._chunks.append(values)
        self._count += len(values)
        chunks = self._chunks
        while len(chunks) > 1 and len(chunks[-2]) <= max(2 * len(chunks[-1]), SMALL):
            joined = batches.few_arrays(chunks[-2:])
            if len(joined) > 1:
                break
            chunks[-2:] = joined


Column = NumpyColumn | ArrowColumn


def column_of(field: FieldType, default: pa.Array | None = None, all_numpy: bool = False) -> Column:
    """A numpy column for plain numbers, or for all if `all_numpy`. Without a default, that of a number is 0, and else null."""
    dtype = column_type(field)
    if dtype is None or (dtype.hasobject and not all_numpy):
        return ArrowColumn(field, default)
    return NumpyColumn(field, dtype, default)


def longer(values: Array, size: int) -> Array:
    """The same values in an array of this size; what follows them is undefined."""
    found = np.empty((size, *values.shape[1:]), values.dtype)
    found[: len(values)] = values
    return found


def _comparable(values: Array) -> Array:
    """NaT is equal to NaT."""
    return values.view(np.int64) if values.dtype.kind == "M" else values


def equal(some: pa.Array | pa.ChunkedArray, others: pa.Array) -> Array:
    """For each pair, True if both are equal, or both are null."""
    same = pc.equal(some, others)
    if not same.null_count:
        return np.asarray(same.to_numpy(zero_copy_only=False))
    both = pc.and_(some.is_null(), others.is_null())
    return np.asarray(pc.or_(same.fill_null(False), both).to_numpy(zero_copy_only=False))
