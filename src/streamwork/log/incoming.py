"""Converts appended events to record batches, and checks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import to_batches
from streamwork.components.field_types import Misfit
from streamwork.components.schema import check_columns
from streamwork.errors import JobFailed
from streamwork.wording import plural

_PIECE_BYTES = 16 << 20  # maximum size of a frame; larger batches are split


def to_record_batches(event: type[Event], schema: pa.Schema, events: Any, where: str) -> list[pa.RecordBatch]:
    """One event, a sequence of events, or a record batch, which must have the log's columns."""
    if isinstance(events, pa.RecordBatch):
        return [_in_range(event, _checked(schema, events, where), where)]
    return to_batches(event, [events] if isinstance(events, Event) else list(events), where)


def _checked(schema: pa.Schema, batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    if batch.schema.names != schema.names or batch.schema.types != schema.types:
        raise JobFailed(
            "SW-TYPE-EVENT",
            f"{where} holds {_shown(schema)}, but the batch has {_shown(batch.schema)}",
            "give the batch the log's columns, in order: batch.select([...]).cast(...)",
            retryable=False,
            about_one_event=True,
        )
    for place, field in enumerate(schema):
        if not field.nullable and batch.column(place).null_count:
            raise JobFailed(
                "SW-TYPE-VALUE",
                f"{where}: {field.name} must not be null, but is null in {plural(batch.column(place).null_count, 'row')}",
                "fill the field in these rows, leave the rows out, or create a log whose type allows None",
                retryable=False,
                about_one_event=True,
            )
    return batch if batch.schema.equals(schema) else pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _in_range(event: type[Event], batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    try:
        check_columns(event, batch)
    except Misfit as misfit:
        raise JobFailed(
            "SW-TYPE-VALUE",
            f"{where}: {misfit.path}: {misfit}",
            "correct these values, or leave the rows out",
            retryable=False,
            about_one_event=True,
        ) from None
    return batch


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def in_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in slices that each fit into one frame."""
    rows, size = batch.num_rows, batch.get_total_buffer_size()
    if size > _PIECE_BYTES:  # of the rows alone, which takes longer to find out
        size = int(batch.nbytes)
    per_piece = rows if size <= _PIECE_BYTES else max(1, rows * _PIECE_BYTES // size)
    for start in range(0, rows, per_piece):
        yield batch.slice(start, per_piece)
