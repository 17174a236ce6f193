"""Events to Arrow batches and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components.batches import halving, joined, within
from streamwork.components.field_types import FieldType, Misfit, TimeType, show
from streamwork.components.schema import arrow_schema, build_column, check_columns, fields_of, maker
from streamwork.components.times import BEGINNING
from streamwork.errors import JobFailed


def to_batches(kind: type[msgspec.Struct], structs: Sequence[Any], where: str) -> list[pa.RecordBatch]:
    """Events or records as checked Arrow batches, in order; as few as the limit allows, one if there are none.

    `where` names the component in errors.
    """
    check_types(kind, structs, where)
    schema = arrow_schema(kind)

    def build(some: Sequence[Any]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([build_column(kind, name, some) for name in schema.names], schema=schema)

    try:
        return [piece for batch in halving(build, structs) for piece in within(batch)]
    except Misfit as misfit:
        raise misfit_error(misfit, kind, structs, where) from None


def to_batch(kind: type[msgspec.Struct], structs: Sequence[Any], where: str) -> pa.RecordBatch:
    """A few events or records as one checked Arrow batch; raises ValueError where one cannot hold them."""
    (batch,) = to_batches(kind, structs, where)
    return batch


def check_types(kind: type[msgspec.Struct] | None, structs: Sequence[Any], where: str) -> None:
    """Refuse events that are not of exactly this type."""
    for strange in set(map(type, structs)) - {kind}:
        culprit, wanted = next(s for s in structs if type(s) is strange), kind.__name__ if kind else "nothing"
        got = strange.__name__
        if kind is not None and got == wanted:  # two classes of one name: show their modules
            wanted, got = f"{kind.__module__}.{kind.__qualname__}", f"{strange.__module__}.{strange.__qualname__}"
        raise JobFailed(
            "SW-TYPE-EVENT",
            f"{where}: expected {wanted} but got {got}: {show(culprit)}",
            f"emit {wanted}, or declare the type that is emitted",
            retryable=False,
            about_one_event=True,
        )


def to_structs(kind: type[msgspec.Struct], batch: pa.RecordBatch) -> list[Any]:
    """The events or records of a batch, which has (at least) the columns of `kind`."""
    fields = fields_of(kind)
    if not fields:
        return [kind() for _ in range(batch.num_rows)]
    return list(map(maker(kind), *(python_values(field, batch.column(name)) for name, field in fields.items())))


class Columns:
    """Events of one type as an Arrow batch of exactly its columns. They become objects only when `events` is read."""

    __slots__ = ("_events", "batch", "kind")

    def __init__(self, kind: type[msgspec.Struct], batch: pa.RecordBatch) -> None:
        self.kind = kind
        self.batch = batch
        self._events: list[Any] | None = None

    @classmethod
    def of(cls, kind: type[msgspec.Struct], batch: pa.RecordBatch) -> Columns | list[Any]:
        """From a batch that has (at least) the columns of `kind`; as events if the Arrow types differ."""
        schema = arrow_schema(kind)
        columns = [batch.column(name) for name in schema.names]
        if not columns or any(column.type != field.type for column, field in zip(columns, schema, strict=True)):
            return to_structs(kind, batch)
        return cls(kind, pa.RecordBatch.from_arrays(columns, schema=schema))

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __getitem__(self, part: slice) -> Columns:
        start, end, _ = part.indices(len(self))
        return Columns(self.kind, self.batch.slice(start, end - start))

    def take(self, places: np.ndarray[Any, Any]) -> Columns:
        """The rows at these places."""
        return Columns(self.kind, self.batch.take(pa.array(places)))

    @property
    def events(self) -> list[Any]:
        if self._events is None:
            self._events = to_structs(self.kind, self.batch)
        return self._events

    def values(self, name: str) -> Sequence[Any]:
        """The values of one field, as they would be in the events."""
        return python_values(fields_of(self.kind)[name], self.batch.column(name))

    def latest(self, name: str) -> int:
        """The largest value of a datetime field, in microseconds; there must be one."""
        return int(pc.max(self.batch.column(name)).value)


def as_events(given: list[Any] | Columns) -> list[Any]:
    return given.events if isinstance(given, Columns) else given


def as_columns(kind: type[msgspec.Struct], given: Sequence[list[Any] | Columns], where: str) -> list[Columns]:
    """Several lists and columns of one type, in order, in as few pieces as the limit allows; events are checked."""
    batches: list[pa.RecordBatch] = []
    waiting: list[Any] = []
    for some in given:
        if isinstance(some, Columns):
            if waiting:
                batches += to_batches(kind, waiting, where)
                waiting = []
            batches.append(some.batch)
        else:
            waiting += some
    if waiting:
        batches += to_batches(kind, waiting, where)
    return [Columns(kind, batch) for batch in joined(batches)]


def conforming(kind: type[msgspec.Struct], batch: pa.RecordBatch, where: str, values: bool = True) -> Columns:
    """A batch from user code, as events of a type; columns are found by name. Refuses what does not fit. Without `values`, they
    were checked before.
    """
    schema, columns = arrow_schema(kind), []
    if strange := set(batch.schema.names) ^ set(schema.names):
        raise _misfitting(kind, where, f"columns {', '.join(map(repr, sorted(strange)))} are missing or too many")
    for field in schema:
        column = batch.column(field.name)
        if column.type != field.type:
            if not (pa.types.is_dictionary(column.type) or _is_wider(column.type, field.type)):
                raise _misfitting(kind, where, f"{field.name!r} is {column.type}, not {field.type}")
            column = column.cast(field.type)
        if column.null_count and not field.nullable:
            raise _misfitting(
                kind, where, f"{field.name!r} has nulls, but {kind.__name__}.{field.name} is not optional"
            )
        columns.append(column)
    conformed = pa.RecordBatch.from_arrays(columns, schema=schema)
    try:
        if values:
            check_columns(kind, conformed)
    except Misfit as misfit:
        raise _misfitting(kind, where, f"{misfit.path!r}: {misfit}") from None
    return Columns(kind, conformed)


def _is_wider(given: pa.DataType, wanted: pa.DataType) -> bool:
    """True if values can be converted without loss: a narrower number can, one that could be cut off cannot."""
    if pa.types.is_integer(given):
        return bool(pa.types.is_int64(wanted) and not pa.types.is_uint64(given))
    text = pa.types.is_large_string(given) and pa.types.is_string(wanted)
    return bool(text or (pa.types.is_float32(given) and pa.types.is_float64(wanted)) or pa.types.is_null(given))


def _misfitting(kind: type[msgspec.Struct], where: str, what: str) -> JobFailed:
    return JobFailed(
        "SW-TYPE-EVENT",
        f"{where} emitted a batch that does not hold {kind.__name__} events: {what}",
        f"emit a batch with the columns of {kind.__name__}: {', '.join(arrow_schema(kind).names)}",
        retryable=False,
        about_one_event=True,
    )


def rows_without_null(batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """The places of the rows that have no null."""
    rows = np.arange(batch.num_rows)
    for column in batch.columns:
        if column.null_count:
            rows = rows[column.is_valid().to_numpy(zero_copy_only=False)[rows]]
    return rows


def distinct(batch: pa.RecordBatch, fields: Sequence[str]) -> tuple[np.ndarray[Any, Any], pa.RecordBatch]:
    """(for each row, the index of its values among the distinct ones; the distinct ones, in the order of their first row)"""
    encoded = [batch.column(name).dictionary_encode(null_encoding="encode") for name in fields]
    places = encoded[0].indices.to_numpy()
    if len(fields) == 1:
        return places, pa.RecordBatch.from_arrays([encoded[0].dictionary], names=list(fields))
    codes = places
    for column in encoded[1:]:  # encoded again each time: then no number is beyond rows * rows, which an int64 holds
        numbers = codes.astype(np.int64) * len(column.dictionary) + column.indices.to_numpy()
        codes = pa.array(numbers).dictionary_encode().indices.to_numpy()
    first = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
    return codes, batch.select(list(fields)).take(pa.array(first))


def python_values(field: FieldType, column: pa.Array) -> Sequence[Any]:
    """The values of a column. Datetimes are made here, because Arrow is slow at those with a time zone."""
    if isinstance(field, TimeType) and column.type == field.arrow:
        since = column.to_numpy(zero_copy_only=False).view("timedelta64[us]").tolist()
        return [None if delta is None else BEGINNING + delta for delta in since]
    return field.restore(column.to_pylist())


def check_entered(kind: type[msgspec.Struct], structs: Sequence[Any]) -> None:
    """Check events from a typed decoder for what it does not check. Raises Misfit, with the field in `path`."""
    for name, field in fields_of(kind).items():
        if type(field).check_entered is FieldType.check_entered:
            continue
        try:
            field.check_entered([getattr(s, name) for s in structs])
        except Misfit as misfit:
            raise Misfit(misfit.value, misfit.expected, name) from None


def culprit(misfit: Misfit, kind: type[msgspec.Struct], structs: Sequence[Any]) -> int | None:
    """The index of the first event whose field does not fit."""
    for place, struct in enumerate(structs):
        try:
            build_column(kind, misfit.path, [struct])
        except Misfit:
            return place
    return None


def misfit_error(misfit: Misfit, kind: type[msgspec.Struct], structs: Sequence[Any], where: str) -> JobFailed:
    place = culprit(misfit, kind, structs)
    named = f" of {show(structs[place])}" if place is not None else ""
    return JobFailed(
        "SW-TYPE-VALUE",
        f"{where}: {kind.__name__}.{misfit.path}: {misfit}{named}",
        f"give {misfit.path} a value of the declared type, or declare another type",
        retryable=False,
        about_one_event=True,
    )
