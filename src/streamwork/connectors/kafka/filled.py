"""Fields of an event that are filled from the record around the value: its timestamp, its key, its headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.components.columns import Columns
from streamwork.components.field_types import FieldType, MapType, Misfit
from streamwork.components.schema import arrow_schema, fields_of, maker
from streamwork.components.times import BEGINNING
from streamwork.errors import WrongUse

Kind = type[msgspec.Struct]
Get = Callable[[Any], Any]
_NO_TIME = 0  # TIMESTAMP_NOT_AVAILABLE


class Filled:
    """Which fields of a type of events are filled from the record, and the type of the others, which the format gives."""

    def __init__(self, kind: Kind, timestamp: str | None, key: str | None, headers: str | None) -> None:
        self.kind = kind
        self._gets: dict[str, Get] = {}
        fields = fields_of(kind)
        for name, what, allowed in (
            (timestamp, "timestamp", _times),
            (key, "key", _keys),
            (headers, "headers", _headers),
        ):
            if name is None:
                continue
            get = allowed(fields[name]) if name in fields else None
            if get is None:
                raise WrongUse(
                    "SW-KAFKA-FIELD",
                    f"{what}={name!r} does not name a field of {kind.__name__} that can hold the {what} of a record",
                    "timestamp= takes a datetime, key= a str or bytes, headers= a dict[str, str] or dict[str, bytes]",
                )
            self._gets[name] = get
        self.payload = without(kind, self._gets.keys()) if self._gets else kind

    def __bool__(self) -> bool:
        return bool(self._gets)

    def events(self, payloads: Sequence[Any], messages: Sequence[Any]) -> list[Any]:
        """The events: what the format has given, with the fields of the records. Raises Misfit, with the field in `path`."""
        if not self._gets:
            return list(payloads)
        columns: list[list[Any]] = []
        for name, field in fields_of(self.kind).items():
            if name not in self._gets:
                columns.append([getattr(one, name) for one in payloads])
                continue
            values = list(map(self._gets[name], messages))
            if not field.nullable and None in values:
                raise Misfit(None, field.name, name)
            columns.append(values)
        return list(map(maker(self.kind), *columns))

    def columns(self, payloads: Columns, messages: Sequence[Any]) -> Columns:
        """As `events`, of columns."""
        if not self._gets:
            return payloads
        made = []
        for name, field in fields_of(self.kind).items():
            if name in self._gets:
                values = list(map(self._gets[name], messages))
                if not field.nullable and None in values:
                    raise Misfit(None, field.name, name)
                made.append(field.build(values))
            else:
                made.append(payloads.batch.column(name))
        return Columns(self.kind, pa.RecordBatch.from_arrays(made, schema=arrow_schema(self.kind)))


def without(kind: Kind, names: Any) -> Kind:
    """The same type without these fields."""
    left: list[Any] = []
    for field in msgspec.structs.fields(kind):
        if field.name not in names:
            given: dict[str, Any] = {} if field.encode_name == field.name else {"name": field.encode_name}
            if field.default is not msgspec.NODEFAULT:
                given["default"] = field.default
            elif field.default_factory is not msgspec.NODEFAULT:
                given["default_factory"] = field.default_factory
            left.append((field.name, field.type, msgspec.field(**given)))
    return msgspec.defstruct(kind.__name__, left, frozen=True, gc=False, kw_only=True, module=kind.__module__)


def _times(field: FieldType) -> Get | None:
    return _time if datetime in field._python else None


def _time(message: Any) -> datetime | None:
    kind, milliseconds = message.timestamp()
    return None if kind == _NO_TIME else BEGINNING + timedelta(milliseconds=milliseconds)


def _keys(field: FieldType) -> Get | None:
    if bytes in field._python:
        return lambda message: message.key()
    return _text_key if str in field._python else None


def _text_key(message: Any) -> str | None:
    key = message.key()
    return None if key is None else key.decode()


def _headers(field: FieldType) -> Get | None:
    if not isinstance(field, MapType):
        return None
    if bytes in field.item._python:
        return lambda message: dict(message.headers() or ())
    return _text_headers if str in field.item._python else None


def _text_headers(message: Any) -> dict[str, str | None]:
    return {name: None if value is None else value.decode() for name, value in message.headers() or ()}
