"""Events to Arrow batches and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.components.schema import (
    FieldType,
    Misfit,
    TimeType,
    arrow_schema,
    build_column,
    fields_of,
    maker,
    show,
)
from streamwork.errors import JobFailed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_batch(kind: type[msgspec.Struct], structs: Sequence[Any], where: str) -> pa.RecordBatch:
    """A checked Arrow batch of events or records; `where` names the component in errors."""
    check_types(kind, structs, where)
    schema = arrow_schema(kind)
    try:
        return pa.RecordBatch.from_arrays([build_column(kind, name, structs) for name in schema.names], schema=schema)
    except Misfit as misfit:
        raise misfit_error(misfit, kind, structs, where) from None


def check_types(kind: type[msgspec.Struct] | None, structs: Sequence[Any], where: str) -> None:
    """Refuse what is not of that very type."""
    for strange in set(map(type, structs)) - {kind}:
        culprit, wanted = next(s for s in structs if type(s) is strange), kind.__name__ if kind else "nothing"
        raise JobFailed(
            "SW-TYPE-EVENT",
            f"{where}: expected {wanted} but got {strange.__name__}: {show(culprit)}",
            f"emit {wanted}, or declare the type that is emitted",
        )


def to_structs(kind: type[msgspec.Struct], batch: pa.RecordBatch) -> list[Any]:
    """The events or records of a batch, which has (at least) the columns of `kind`."""
    fields = fields_of(kind)
    if not fields:
        return [kind() for _ in range(batch.num_rows)]
    return list(map(maker(kind), *(_values(field, batch.column(name)) for name, field in fields.items())))


def _values(field: FieldType, column: pa.Array) -> Sequence[Any]:
    """The values of a column. Arrow makes a datetime with a time zone so slowly that all else would wait for it."""
    if isinstance(field, TimeType) and column.type == field.arrow:
        since = column.to_numpy(zero_copy_only=False).view("timedelta64[us]").tolist()
        return [None if delta is None else EPOCH + delta for delta in since]
    return field.restore(column.to_pylist())


def check_entered(kind: type[msgspec.Struct], structs: Sequence[Any]) -> None:
    """Check events that a typed decoder made for what it lets through. Raises Misfit, with the field in `path`."""
    for name, field in fields_of(kind).items():
        try:
            field.check_entered([getattr(s, name) for s in structs])
        except Misfit as misfit:
            raise Misfit(misfit.value, misfit.expected, name) from None


def misfit_error(misfit: Misfit, kind: type[msgspec.Struct], structs: Sequence[Any], where: str) -> JobFailed:
    culprit = next((s for s in structs if getattr(s, misfit.path, None) is misfit.value), None)
    named = f" of {show(culprit)}" if culprit is not None else ""
    return JobFailed(
        "SW-TYPE-VALUE",
        f"{where}: {kind.__name__}.{misfit.path}: {misfit}{named}",
        f"give {misfit.path} a value of the declared type, or declare another type",
    )
