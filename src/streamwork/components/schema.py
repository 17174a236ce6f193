"""From annotations to Arrow: the field types and the Arrow schema of events and records."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from streamwork.components.field_types import (
    DateType,
    DecimalType,
    FieldType,
    IntType,
    ListType,
    MapType,
    Misfit,
    TimeType,
    Values,
    relaxed,
)
from streamwork.components.values import Digits, Event, Record
from streamwork.errors import WrongUse

SUPPORTED = (
    "str, int, float, bool, bytes, datetime, date, Annotated[Decimal, Digits(precision, scale)], "
    "list[T], dict[str, T], Optional[T] and nested events"
)


class NestedType(FieldType):
    def __init__(self, kind: type[msgspec.Struct], nullable: bool) -> None:
        self._fields = fields_of(kind)
        arrow = pa.struct([pa.field(name, f.arrow, f.nullable) for name, f in self._fields.items()])
        if nullable:  # below a null event all fields are null
            arrow = relaxed(arrow)
        super().__init__(arrow, kind.__name__, (kind,), nullable)
        self.kind = kind
        self._make = maker(kind)

    def build(self, values: Values) -> pa.Array:
        self.check(values)
        absent = [v is None for v in values]
        arrays = []
        for name, field in self._fields.items():
            column = [None if v is None else getattr(v, name) for v in values]
            array = _maybe_null(field, column) if any(absent) else field.build(column)
            arrays.append(array.cast(self.arrow.field(name).type))
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow), mask=pa.array(absent, pa.bool_()))

    def restore(self, values: Values) -> Values:
        columns = [
            field.restore([None if v is None else v[name] for v in values]) if values else []
            for name, field in self._fields.items()
        ]
        rows = zip(*columns, strict=True) if columns else ((),) * len(values)
        return [None if v is None else self._make(*row) for v, row in zip(values, rows, strict=True)]

    def check_entered(self, values: Values) -> None:
        for name, field in self._fields.items():
            field.check_entered([getattr(v, name) for v in values if v is not None])

    def check_column(self, column: pa.Array) -> None:
        for field, child in zip(self._fields.values(), column.flatten(), strict=True):
            field.check_column(child)


def _maybe_null(field: FieldType, column: Values) -> pa.Array:
    built = field.build([v for v in column if v is not None])
    places = iter(range(len(built)))
    return built.take(pa.array([None if v is None else next(places) for v in column], pa.int64()))


_SCALARS: dict[type, Callable[[bool], FieldType]] = {
    str: lambda nullable: FieldType(pa.string(), "str", (str,), nullable),
    int: IntType,
    float: lambda nullable: FieldType(pa.float64(), "float", (float, int), nullable),
    bool: lambda nullable: FieldType(pa.bool_(), "bool", (bool,), nullable),
    bytes: lambda nullable: FieldType(pa.binary(), "bytes", (bytes,), nullable),
    datetime: TimeType,
    date: DateType,
}


def field_type(annotation: Any, where: str) -> FieldType:
    """The field type of an annotation; `where` names the field in errors."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    nullable = False
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in arguments if a is not type(None)]
        if len(rest) != 1 or len(rest) == len(arguments):
            raise _unsupported(annotation, where)
        nullable, annotation = True, rest[0]
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        digits = next((a for a in arguments[1:] if isinstance(a, Digits)), None)
        if arguments[0] is not Decimal or digits is None:
            raise _unsupported(annotation, where)
        return DecimalType(digits, nullable)
    if origin is list:
        return ListType(field_type(arguments[0], where), nullable)
    if origin is dict and arguments[0] is str:
        return MapType(field_type(arguments[1], where), nullable)
    if isinstance(annotation, type) and annotation in _SCALARS:
        return _SCALARS[annotation](nullable)
    if isinstance(annotation, type) and issubclass(annotation, Event | Record):
        return NestedType(annotation, nullable)
    raise _unsupported(annotation, where)


def _unsupported(annotation: Any, where: str) -> WrongUse:
    shown = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return WrongUse(
        "SW-TYPE-FIELD", f"{where} has type {shown}, which has no place in Arrow", f"use one of {SUPPORTED}"
    )


@functools.cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, FieldType]:
    """Name and type of each field, in order."""
    given: Any = kind  # callers may pass anything
    if not (isinstance(given, type) and issubclass(given, msgspec.Struct)):
        shown = getattr(given, "__name__", repr(given))
        raise WrongUse("SW-TYPE-FIELD", f"{shown} is neither an Event nor a Record", f"write class {shown}(Event)")
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise WrongUse(
            "SW-TYPE-FIELD",
            f"a field of {kind.__name__} has a type that is not known where it is defined: {error}",
            "import or define that type at the top level of the module",
        ) from None
    private = f"_{kind.__name__.lstrip('_')}__"  # what Python makes of two leading underscores in a class body
    for name in kind.__struct_fields__:
        if name.startswith(private):
            plain = name.removeprefix(private.removesuffix("__"))
            raise WrongUse(
                "SW-TYPE-FIELD",
                f"{kind.__name__}.{plain} starts with two underscores",
                "rename it: such names are Streamwork's own columns",
            )
    return {name: field_type(hints[name], f"{kind.__name__}.{name}") for name in kind.__struct_fields__}


@functools.cache
def holds_mutable(kind: type[msgspec.Struct]) -> bool:
    """True if values of this type may contain mutable objects: a list, a dict, a record."""
    return any(_is_mutable(field) for field in fields_of(kind).values())


def _is_mutable(field: FieldType) -> bool:
    if isinstance(field, NestedType):
        return issubclass(field.kind, Record) or holds_mutable(field.kind)
    return isinstance(field, ListType | MapType)


@functools.cache
def arrow_schema(kind: type[msgspec.Struct]) -> pa.Schema:
    return pa.schema([pa.field(name, f.arrow, f.nullable) for name, f in fields_of(kind).items()])


def flat_copy(kind: type[msgspec.Struct]) -> Callable[[Any], Any] | None:
    """How a value without containers is copied: what `copy.copy` calls. None for others: only `copy.deepcopy` copies them."""
    if any(field.arrow.num_fields for field in fields_of(kind).values()):
        return None
    copied: Callable[[Any], Any] = kind.__copy__  # type: ignore[attr-defined]
    return copied


@functools.cache
def maker(kind: type[msgspec.Struct]) -> Callable[..., Any]:
    """A constructor from the values of the fields, in order; also for keyword-only fields."""
    names = kind.__struct_fields__
    if all(p.kind is not p.KEYWORD_ONLY for p in inspect.signature(kind).parameters.values()):
        return kind
    return lambda *values: kind(**dict(zip(names, values, strict=True)))


def check_columns(kind: type[msgspec.Struct], batch: pa.RecordBatch) -> None:
    """Check a batch that has the columns of `kind`, in Arrow's types, for values out of range; a Misfit names the field."""
    for name, field in fields_of(kind).items():
        try:
            field.check_column(batch.column(name))
        except Misfit as misfit:
            raise Misfit(misfit.value, misfit.expected, name) from None


def build_column(kind: type[msgspec.Struct], name: str, structs: Iterable[Any]) -> pa.Array:
    """The checked Arrow column of one field; a Misfit names the field."""
    try:
        return fields_of(kind)[name].build(list(map(attrgetter(name), structs)))
    except Misfit as misfit:
        raise type(misfit)(misfit.value, misfit.expected, name) from None
