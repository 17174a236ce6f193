"""State as `apply_batch` of a keyed operator sees it: the records of a batch's keys, column by column.

    field of the record            numpy array
    int, float, bool               int64, float64, bool
    datetime                       datetime64[us], in UTC; NaT stands for None where the field is optional
    str, bytes, date, Decimal      object: the values themselves
    any of int ... Decimal | None  object, with None (except datetime)

Lists, dicts and nested records have no column: a job that keeps them by batches is refused when it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.components.columns import python_values
from streamwork.components.field_types import EXACT, INT_RANGE, FieldType
from streamwork.components.schema import fields_of

Array = np.ndarray[Any, Any]
_PLAIN = {pa.int64(): np.dtype(np.int64), pa.float64(): np.dtype(np.float64), pa.bool_(): np.dtype(np.bool_)}
_WELCOME = {"i": "iu", "f": "iuf", "b": "b", "M": "M"}
"""Kind of a column -> kinds of arrays that can be assigned to it: a float is not an int, and a bool is not a number."""


class KeyedColumns:
    """The state of the keys that are in one batch.

    ``state["total"]`` is an array with one value per distinct key: that of its record, or the default if the key is new. It is
    a copy; ``state["total"] = ...`` stores an array. All keys of the batch count as changed.
    """

    __slots__ = ("_columns", "_keys", "_places", "codes", "forgotten")

    codes: Array
    """For each row of the batch, the index of its key in `keys` and in every column."""

    def __init__(
        self, codes: Array, keys: Callable[[], pa.RecordBatch], columns: Mapping[str, Array], places: Array
    ) -> None:
        """For the engine: `places` are the indexes of the keys in `columns`."""
        self.codes = codes
        self._keys: Callable[[], pa.RecordBatch] | pa.RecordBatch = keys
        self._columns = columns
        self._places = places
        self.forgotten: Array = np.empty(0, np.int64)
        """The indexes of keys that are to be forgotten."""

    @property
    def keys(self) -> pa.RecordBatch:
        """The distinct keys, with one column for each field of the key: ``state.keys["card"]``."""
        if not isinstance(self._keys, pa.RecordBatch):
            self._keys = self._keys()
        return self._keys

    def forget(self, mask: Any) -> None:
        """Remove the state of keys when `apply_batch` has returned: `mask` is a bool per distinct key. If such a key comes again,
        its record is new.
        """
        given = np.asarray(mask)
        if given.dtype != bool or given.shape != (len(self),):
            raise ValueError(
                f"forget takes one bool per distinct key, {len(self)}, and not {given.dtype} {given.shape}"
            )
        self.forgotten = np.union1d(self.forgotten, np.flatnonzero(given))

    def __len__(self) -> int:
        """The number of distinct keys."""
        return len(self._places)

    def __getitem__(self, name: str) -> Array:
        return self._column(name).take(self._places)  # faster than an index

    def __setitem__(self, name: str, values: Any) -> None:
        column, given = self._column(name), np.asarray(values)
        if given.shape not in ((), (len(self),)):
            raise ValueError(f"state[{name!r}] has one value per distinct key, {len(self)}, and not {given.shape}")
        if column.dtype != object and given.dtype.kind not in _WELCOME[column.dtype.kind]:
            raise TypeError(f"state[{name!r}] is {column.dtype}, and cannot take {given.dtype} ({given.ravel()[:1]!r})")
        if (wrong := _lost(given, column.dtype)) is not None:
            raise OverflowError(f"state[{name!r}] is {column.dtype}, which cannot hold {wrong!r}")
        column[self._places] = given.astype(column.dtype, copy=False)

    def _column(self, name: str) -> Array:
        if name not in self._columns:
            raise KeyError(f"the record has no field {name!r}, but {', '.join(self._columns)}")
        return self._columns[name]


def _lost(given: Array, wanted: np.dtype[Any]) -> Any:
    """The first value that numpy would change without an error (uint64 wraps, nanoseconds are cut off); None if there is none."""
    if given.dtype == wanted or wanted == np.dtype(object):
        return None
    same: Any
    if wanted.kind == "M":
        years = given.astype("datetime64[Y]").astype(np.int64) + 1970  # numpy compares finer units by overflowing
        same = ((years >= 1) & (years <= 9999) & (given.astype(wanted).astype(given.dtype) == given)) | np.isnat(given)
    elif wanted.kind == "f" and given.dtype.kind in "iu":
        same = _float_keeps(given)
    elif wanted.kind == "f":
        same = (given.astype(wanted) == given) | np.isnan(given)
    elif given.dtype.kind == "u":
        same = given <= INT_RANGE[1]
    else:
        return None
    wrong = np.flatnonzero(~np.broadcast_to(same, given.shape))
    return given.ravel()[wrong[0]].item() if len(wrong) else None


def _float_keeps(given: Array) -> Any:
    """Whole numbers up to 2**53 are accepted as floats; larger ones are refused, as in events."""
    return (given <= EXACT) & (given >= -EXACT) if given.dtype.kind == "i" else given <= EXACT


def column_type(field: FieldType) -> np.dtype[Any] | None:
    """The type of a field's numpy column; None if it has none."""
    if field.arrow.num_fields:
        return None
    if pa.types.is_timestamp(field.arrow):
        return np.dtype("datetime64[us]")
    return np.dtype(object) if field.nullable else _PLAIN.get(field.arrow, np.dtype(object))


def without_column(record: type[msgspec.Struct]) -> Sequence[str]:
    """The fields that have no numpy column."""
    return [name for name, field in fields_of(record).items() if column_type(field) is None]


def to_numpy(field: FieldType, column: pa.Array) -> Array:
    """An Arrow column of this field, copied into a numpy column."""
    kind = column_type(field)
    if kind == np.dtype(object):
        values = np.empty(len(column), object)
        values[:] = python_values(field, column)
        return values
    return np.array(column.to_numpy(zero_copy_only=False), kind)


def to_arrow(field: FieldType, values: Array) -> pa.Array:
    """The checked Arrow column of a numpy column; raises Misfit."""
    if values.dtype == object:
        return field.build(values.tolist())
    if values.dtype.kind == "M":
        array = pa.array(values, pa.timestamp("us")).cast(field.arrow)
        field.check_column(array)
        return array if field.nullable or not array.null_count else field.build([None])  # which is refused
    return pa.array(values, field.arrow)
