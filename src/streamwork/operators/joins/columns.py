"""Columns of sides: rows by place, with nulls where a side has no row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.components.batches import halving, one_array
from streamwork.components.field_types import LESS, Oversized
from streamwork.components.made import annotations_of
from streamwork.components.schema import arrow_schema
from streamwork.components.table_operator import StateTable
from streamwork.components.values import Event

Array = np.ndarray[Any, Any]
WATERMARK = "join_watermark"
"""The column of the state with the watermark of a kept event; null if it had none, or was stored before there was this column."""
MOST_ROWS = 1 << 17
"""Of a batch that a join emits: rows with many matches give many more rows."""


def state_times(state: StateTable, name: str, places: Array) -> Array:
    """A column of times of the state, in microseconds."""
    return state.numbers(name, places).view(np.int64)


def put_watermarks(state: StateTable, places: Array, watermarks: Array) -> None:
    """Keep the watermarks of events: `NEVER` is null."""
    state.put(WATERMARK, places, watermarks.view("datetime64[us]"))


def keys_of(batch: pa.RecordBatch, fields: Sequence[str], names: Sequence[str]) -> pa.RecordBatch:
    """The key columns of a batch, named as in the state."""
    return pa.RecordBatch.from_arrays([batch.column(field) for field in fields], names=list(names))


def taken(column: pa.Array, rows: Array) -> pa.Array:
    """The values of these rows; null where a row is -1. Raises Oversized."""
    absent = rows < 0
    try:
        found = column.take(pa.array(rows, mask=absent) if absent.any() else pa.array(rows))
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        raise Oversized(rows, LESS) from None
    return one_array(found.chunks, found.type) if isinstance(found, pa.ChunkedArray) else found


def looked_up(state: StateTable, name: str, places: Array) -> pa.Array:
    """The values at these places of the state; null where a place is -1."""
    known = places >= 0
    if known.all():
        return state.values(name, places)
    numbers = np.cumsum(known) - 1
    return taken(state.values(name, places[known]), np.where(known, numbers, -1))


def in_pieces(make: Callable[[Array], pa.RecordBatch], count: int) -> Iterator[tuple[Array, pa.RecordBatch]]:
    """(numbers, the batch that `make` makes of them), of the numbers from 0 to `count`; in pieces that Arrow can hold."""
    for start in range(0, count, MOST_ROWS):
        numbers = np.arange(start, min(start + MOST_ROWS, count))
        yield from halving(lambda some: (some, make(some)), numbers)


def batch_of(event: type[msgspec.Struct], columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of a type, from columns by name. An optional field may have another Arrow type inside."""
    schema = arrow_schema(event)
    fitted = [
        column if column.type == field.type else column.cast(field.type)
        for field, column in ((field, columns[field.name]) for field in schema)
    ]
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


def kept_fields(event: type[msgspec.Struct], names: Sequence[str], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """The fields of a record that keeps these fields of an event: name -> (annotation, default). All may be null."""
    known = annotations_of(event)
    return {f"{prefix}{name}": (known[name] | None, None) for name in names}


def former_names(event: type[Event], prefix: str = "") -> dict[str, str]:
    """Name now -> the name that it had, of the fields of a record that keeps fields of an event."""
    return {f"{prefix}{name}": f"{prefix}{was}" for name, was in event.renamed_from.items()}
