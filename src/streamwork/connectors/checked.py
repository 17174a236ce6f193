"""Turns Arrow batches from outside into events. Every value is checked against its field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.components import OnError, Slice
from streamwork.components.columns import Columns, as_events
from streamwork.components.field_types import Misfit, relaxed
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.components.source import Offsets
from streamwork.errors import JobFailed


def checked_slice(
    event: type[msgspec.Struct],
    batch: pa.RecordBatch,
    on_error: OnError | None,
    row_name: Callable[[int], str],
    action: str,
    offsets: Offsets,
) -> Slice:
    """The events of a batch, which has at least the columns of `event`, each of a type that fits (`parquet_types`).

    `on_error` applies to a row with a value that does not fit. If it is None or "fail", the error names
    `row_name(row)` and has the given `action`. `offsets` are those of the rows, as `Slice` takes them.
    """
    try:
        return Slice(_events(event, batch), offsets)
    except Misfit:
        good: list[int] = []
        piece = Slice([], lambda: rows.offsets[good])
        rows = Slice([None] * batch.num_rows, offsets)
        for row in range(batch.num_rows):
            try:
                piece.events.extend(as_events(_events(event, batch.slice(row, 1))))
                good.append(row)
            except Misfit as misfit:
                why = f"{row_name(row)}, field {misfit.path!r}: {misfit}"
                if on_error in (None, "fail"):
                    raise JobFailed("SW-SOURCE-BAD-EVENT", why, action, retryable=False, about_one_event=True) from None
                piece.leave_out(
                    on_error, str({n: _only(batch.column(n).slice(row, 1)) for n in batch.schema.names}), why
                )
        return piece


def _events(event: type[msgspec.Struct], batch: pa.RecordBatch) -> list[Any] | Columns:
    """The events of a batch. Raises Misfit, with the field in `path`, for a value that does not fit."""
    columns = []
    for name, field in fields_of(event).items():
        column = batch.column(name)
        if column.null_count and not field.nullable:
            raise Misfit(None, field.name, name)
        try:
            wanted = relaxed(field.arrow)
            columns.append(column if column.type == wanted else column.cast(wanted))
            field.check_column(columns[-1])
            if field.arrow.num_fields:  # building the value finds nested nulls
                field.build(field.restore(columns[-1].to_pylist()))
        except (pa.ArrowException, UnicodeDecodeError):
            raise Misfit(_only(column), field.name, name) from None
        except Misfit as misfit:
            raise Misfit(misfit.value, misfit.expected, name) from None
    if not columns:
        return Columns.of(event, batch)
    return Columns.of(event, pa.RecordBatch.from_arrays(columns, names=arrow_schema(event).names))


def _only(column: pa.Array) -> Any:
    """The value of a column with one row."""
    if len(column) != 1:
        return column
    try:
        return column[0].as_py()
    except (ValueError, OverflowError):  # a date outside Python's range, or invalid UTF-8
        return column.cast(pa.binary())[0].as_py() if pa.types.is_string(column.type) else _as_arrow_writes(column)


def _as_arrow_writes(column: pa.Array) -> str:
    return " ".join(column.to_string().split()).strip("[] ")
