"""Keys and key groups: which instance, and which partition, a key belongs to.

    group    = crc32(canonical bytes of the key) mod groups
    instance = group * parallelism // groups

The canonical bytes can be made in any language (golden vectors: ``tests/components/test_keys.py``), and crc32 is
native to Spark.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Context, Decimal
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import crc32
from streamwork.components.field_types import TimeType, in_utc
from streamwork.components.schema import fields_of
from streamwork.components.times import BEGINNING
from streamwork.errors import WrongUse

GROUPS = 256
SHORT = 64
"""Up to so many rows, one at a time is faster than whole columns."""
_DIGITS = Context(prec=76)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Key(msgspec.Struct, frozen=True):
    """The fields that an event is keyed by. A key value is the field's value, or a tuple of them if there are
    several.
    """

    fields: tuple[str, ...]
    scales: tuple[int | None, ...] = ()  # of Decimal fields: 1.5 and 1.50 are one key
    times: tuple[bool, ...] = ()  # which fields are datetimes: one point in time is one key, in any zone

    @classmethod
    def of(cls, kind: type[msgspec.Struct], names: str | Iterable[str]) -> Key:
        """Check names against the fields of an event type."""
        if isinstance(names, set | frozenset):
            raise WrongUse("SW-KEY-FIELD", "key= is a set, which has no order", "name the fields in a list or tuple")
        fields = (names,) if isinstance(names, str) else tuple(names)
        if len(set(fields)) < len(fields):
            raise WrongUse("SW-KEY-FIELD", f"key= names a field twice: {', '.join(fields)}", "name each field once")
        if not fields:
            raise WrongUse("SW-KEY-FIELD", "key= names no field", f"name at least one field of {kind.__name__}")
        known = fields_of(kind)
        for name in fields:
            if name not in known:
                raise WrongUse(
                    "SW-KEY-FIELD", f"{kind.__name__} has no field {name!r}", f"use one of: {', '.join(known)}"
                )
            if known[name].arrow.num_fields or pa.types.is_floating(known[name].arrow):
                raise WrongUse(
                    "SW-KEY-TYPE",
                    f"{kind.__name__}.{name} is a {known[name].name} and cannot be a key",
                    "key by str, int, bool, bytes, datetime, date or Decimal",
                )
        scales = tuple(t.scale if pa.types.is_decimal(t := known[name].arrow) else None for name in fields)
        times = tuple(isinstance(known[name], TimeType) for name in fields)
        return cls(fields, scales if any(s is not None for s in scales) else (), times if any(times) else ())

    def values(self, events: Iterable[Any]) -> list[Any]:
        """The key value of each event, with times in UTC. Raises any exception for an event that does not fit its type."""
        found = map(attrgetter(*self.fields), events)
        return list(map(self._in_utc, found)) if self.times else list(found)

    def groups(self, values: Iterable[Any], groups: int = GROUPS) -> list[int]:
        """The key group of each key value."""
        return [zlib.crc32(name) % groups for name in self.names(values)]

    def names(self, values: Iterable[Any]) -> list[bytes]:
        """The canonical bytes of each key value: equal values have equal ones."""
        return list(map(canonical, map(self._scaled, values) if self.scales else values))

    def column_groups(self, columns: Sequence[pa.Array], groups: int = GROUPS) -> np.ndarray[Any, Any]:
        """The key group of each row; `columns` are those of the key's fields."""
        types = [column.type for column in columns]
        is_short = len(columns[0]) <= SHORT and all(
            pa.types.is_string(one) or pa.types.is_integer(one) for one in types
        )
        if is_short or any(map(pa.types.is_decimal, types)):  # of decimals, Arrow's text differs from ours
            parts = [column.to_pylist() for column in columns]
            return np.array(self.groups(parts[0] if len(parts) == 1 else zip(*parts, strict=True), groups), np.uint32)
        crcs = crc32.begin(len(columns[0]))
        for column in map(_canonical_column, columns):
            if len(columns) > 1:
                sizes = crc32.lengths(column)
                crc32.update_number(crcs, np.where(column.is_null().to_numpy(zero_copy_only=False), -1, sizes))
            crc32.update(crcs, column.fill_null("" if len(columns) > 1 else "\0"))
        return crc32.end(crcs) % np.uint32(groups)

    def column_instances(
        self, columns: Sequence[pa.Array], parallelism: int, groups: int = GROUPS
    ) -> np.ndarray[Any, Any]:
        """`instance_of`, for each row."""
        instances = self.column_groups(columns, groups) * np.uint32(parallelism) // np.uint32(groups)
        return instances.astype(np.uint16 if parallelism < 1 << 16 else np.uint32)  # numpy sorts short numbers by radix

    def _scaled(self, value: Any) -> Any:
        if len(self.fields) == 1:
            return _at_scale(value, self.scales[0])
        return tuple(_at_scale(part, scale) for part, scale in zip(value, self.scales, strict=True))

    def _in_utc(self, value: Any) -> Any:
        if len(self.fields) == 1:
            return None if value is None else in_utc(value)
        return tuple(
            in_utc(part) if is_time and part is not None else part
            for part, is_time in zip(value, self.times, strict=True)
        )

    def column(self, place: int, values: Iterable[Any]) -> list[Any]:
        """The part of each key value that belongs to the field at `place`."""
        return list(values) if len(self.fields) == 1 else [value[place] for value in values]


def _at_scale(value: Any, scale: int | None) -> Any:
    """A Decimal as Arrow returns it: with the field's scale, up to 38 digits, and without a negative zero."""
    if value is None or scale is None:
        return value
    return _DIGITS.plus(value.quantize(Decimal(1).scaleb(-scale), context=_DIGITS))


def canonical(value: Any) -> bytes:
    """The canonical bytes of a key value, the same in every host and language."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, tuple):
        return b"".join(b"\xff\xff\xff\xff" if part is None else _sized(canonical(part)) for part in value)
    if value is None:
        return b"\x00"
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, bytes):
        return value
    if isinstance(value, datetime):
        since = value - BEGINNING
        return b"%d" % ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
    if isinstance(value, date):
        return b"%d" % (value.toordinal() - _EPOCH_DAY)
    if isinstance(value, Decimal):
        return format(value, "f").encode()
    raise TypeError(f"{type(value).__name__} cannot be a key")


def _canonical_column(column: pa.Array) -> pa.Array:
    """The canonical bytes of each value, as text or bytes; nulls stay nulls."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_binary(kind) or pa.types.is_string(kind):
        return column
    return column.cast(pa.string())


def canonical_order(
    numbers: np.ndarray[Any, Any], key: Sequence[pa.Array], further: Sequence[pa.Array] = ()
) -> np.ndarray[Any, Any]:
    """The order of rows by a number, then by the canonical bytes of the key, then by the values of further columns."""
    columns = [pa.array(numbers)]
    for column in key:
        if pa.types.is_decimal(column.type):
            text = pa.array([None if v is None else canonical(v) for v in column.to_pylist()], pa.binary())
        else:
            text = _canonical_column(column).cast(pa.binary())
        if len(key) > 1:
            sizes = np.where(
                text.is_null().to_numpy(zero_copy_only=False), 0xFFFFFFFF, crc32.lengths(text).astype(np.int64)
            )
            columns.append(pa.array(sizes))
        columns.append(text.fill_null(b"" if len(key) > 1 else b"\0"))
        if text.null_count:  # alone, a null has the bytes of "\0": it comes first
            columns.append(text.is_valid().cast(pa.int8()))
    deciding = [column for column in (*columns, *further) if not _is_constant(column)]
    if len(deciding) < 2:  # the sort of one array is much faster
        return np.asarray(pc.sort_indices(deciding[0])) if deciding else np.arange(len(numbers))
    table = pa.table(deciding, names=list(map(str, range(len(deciding)))))
    return np.asarray(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]))


def _is_constant(column: pa.Array) -> bool:
    """True if a column of numbers or times has only one value. Text is not compared."""
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        return False
    found = pc.min_max(column, skip_nulls=False)
    return bool(found["min"].is_valid and found["min"] == found["max"])


def _sized(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part


def instance_of(group: int, parallelism: int, groups: int = GROUPS) -> int:
    return group * parallelism // groups
