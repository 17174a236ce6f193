"""JSON values to Arrow columns, without objects in between. `JsonFormat` does not use it: it is not faster than objects first.

Arrow's parser is used for events of plain fields, and only for what it reads as `msgspec` does: any doubt raises, and the values
are decoded one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from streamwork.components.batches import one_array
from streamwork.components.columns import Columns
from streamwork.components.schema import arrow_schema, check_columns, fields_of

_PLAIN = (pa.string(), pa.int64(), pa.float64(), pa.bool_())
_MARGIN = 16
_NEWLINE, _OPEN, _CLOSE = b"\n{}"


class Doubt(ValueError):
    """The values may not be events, or Arrow may read them differently."""


def is_plain(kind: type[msgspec.Struct]) -> bool:
    """True if every field has a plain type, and is either required, or optional with the default None."""
    types = fields_of(kind)
    for field in msgspec.structs.fields(kind):
        type_ = types[field.name]
        wanted = None if type_.nullable else msgspec.NODEFAULT
        if type_.arrow not in _PLAIN or field.encode_name != field.name:
            return False
        if field.default is not wanted or field.default_factory is not msgspec.NODEFAULT:
            return False
    return bool(types)


def columns(kind: type[msgspec.Struct], values: Sequence[bytes]) -> Columns:
    """The events of these values; `kind` is plain. Raises where there is any doubt."""
    data = b"\n".join(values)
    if not are_objects(data, len(values)):
        raise Doubt("not one object per value")
    if (data.find(b"N") >= 0 and b"NaN" in data) or (data.find(b"I") >= 0 and b"Inf" in data):
        raise Doubt("perhaps a number that JSON does not have")
    pa.array([data], pa.binary()).cast(pa.string())  # raises if it is not UTF-8
    schema = arrow_schema(kind)
    table = pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + _MARGIN),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([pa.field(field.name, field.type) for field in schema]),
            newlines_in_values=False,
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != len(values):
        raise Doubt("not one object per value")
    made = []
    for field in schema:
        column = one_array(table.column(field.name).chunks, field.type)
        if column.null_count and not field.nullable:
            raise Doubt(field.name)
        if pa.types.is_floating(column.type) and _is_doubtful(column):
            raise Doubt(field.name)
        made.append(column)
    batch = pa.RecordBatch.from_arrays(made, schema=schema)
    check_columns(kind, batch)
    return Columns(kind, batch)


def are_objects(data: bytes, count: int) -> bool:
    """True if these lines are `count` values, each of which begins and ends like an object. `bytes.count` is many times slower."""
    if data[:1] != b"{" or data[-1:] != b"}":
        return False
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == _NEWLINE)
    return len(ends) == count - 1 and bool(
        (characters[ends - 1] == _CLOSE).all() and (characters[ends + 1] == _OPEN).all()
    )


def _is_doubtful(column: pa.Array) -> bool:
    """True if a number is too large, or is -0, of which `msgspec` makes 0 if it is written without a point."""
    found = column.drop_null().to_numpy()
    return not np.isfinite(found).all() or bool((np.signbit(found) & (found == 0)).any())
