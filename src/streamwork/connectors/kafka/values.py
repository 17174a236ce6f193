"""Rows to the values and keys of Kafka records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Event
from streamwork.components.columns import to_structs
from streamwork.components.schema import fields_of
from streamwork.connectors.kafka.filled import without
from streamwork.connectors.text import plain_json
from streamwork.errors import WrongUse

Encode = Callable[[pa.RecordBatch], list[Any]]


def encoder(kind: type[Event], format: str | Callable[[Any], bytes | None], apart: Sequence[str]) -> Encode:  # noqa: A002
    """A function from rows to values. `apart` are fields that are not part of the value."""
    if format == "json":
        return _json(without(kind, apart) if apart else kind)
    if format == "raw":
        names = [name for name in kind.__struct_fields__ if name not in apart]
        if len(names) != 1 or fields_of(kind)[names[0]].name not in ("bytes", "str"):
            raise WrongUse(
                "SW-KAFKA-FIELD",
                f'format="raw" writes one field, of type bytes or str; {kind.__name__} has {", ".join(names)}',
                "send events with one such field, or use another format",
            )
        return lambda batch: batch.column(names[0]).to_pylist()
    if callable(format):
        function = format
        return lambda batch: [function(event) for event in to_structs(kind, batch)]
    raise WrongUse(
        "SW-KAFKA-FORMAT", f"format={format!r} is not known", 'use "json", "raw", or a function from an event to bytes'
    )


def _json(kind: type[msgspec.Struct]) -> Encode:
    names = list(kind.__struct_fields__)
    encode = msgspec.json.Encoder()

    def values(batch: pa.RecordBatch) -> list[bytes]:
        if any(_is_infinite(batch.column(name)) for name in names):  # JSON has no word for them
            rows = pa.StructArray.from_arrays([batch.column(name) for name in names], names=names)
            return [msgspec.json.encode(plain_json(row, rows.type)) for row in rows.to_pylist()]
        lines = encode.encode_lines(to_structs(kind, batch))
        return lines.split(b"\n")[:-1]  # JSON escapes newlines in text

    return values


def _is_infinite(column: pa.Array) -> bool:
    """True if a float in the column, at any depth, is NaN or infinite."""
    if pa.types.is_floating(column.type):
        return not pc.all(pc.is_finite(column), min_count=0).as_py()
    if pa.types.is_map(column.type):
        return _is_infinite(column.items)
    if pa.types.is_list(column.type):
        return _is_infinite(column.flatten())
    if pa.types.is_struct(column.type):
        return any(map(_is_infinite, column.flatten()))
    return False
