"""Values of records to events: JSON, raw bytes, Avro in the wire format of a schema registry, or a function of the user.

A format is sent to workers; the decoder that it makes for a type of events is not. `many` decodes a whole piece and raises if any
value does not fit; then `one` decodes each value, so that the error names the one that is at fault.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import Columns, check_entered
from streamwork.components.field_types import Misfit
from streamwork.components.schema import arrow_schema, fields_of, maker
from streamwork.connectors.kafka.registry import Registry
from streamwork.errors import WrongUse

Kind = type[msgspec.Struct]


class Decoder(Protocol):
    def many(self, values: Sequence[bytes]) -> list[Any]:
        """The events of these values, in order. Raises if any does not fit: a `StreamworkError` if the cause is not the value."""

    def one(self, value: bytes) -> Any: ...

    def columns(self, values: Sequence[bytes]) -> Columns | None:
        """As `many`, without making objects; None if this decoder cannot."""


class ValueFormat(ABC):
    """How the value of a record becomes an event."""

    def check(self, kind: Kind) -> None:
        """Refuse a type of events that the format cannot give. Called when the job is built."""
        self.decoder(kind)

    @abstractmethod
    def decoder(self, kind: Kind) -> Decoder:
        """A decoder for events of this type."""


class JsonFormat(ValueFormat):
    """One JSON object per value. Fields that the event does not have are ignored."""

    def decoder(self, kind: Kind) -> Decoder:
        return _Json(kind)

    def __repr__(self) -> str:
        return "JsonFormat()"


class _Json:
    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def many(self, values: Sequence[bytes]) -> list[Any]:
        events = list(map(self._decoder.decode, values))
        check_entered(self._kind, events)
        return events

    def one(self, value: bytes) -> Any:
        event = self._decoder.decode(value)
        check_entered(self._kind, [event])
        return event

    def columns(self, values: Sequence[bytes]) -> Columns | None:
        return None  # Arrow's own parser is not faster


class RawFormat(ValueFormat):
    """The value as it is, in the field `field`: bytes, or text in UTF-8. An event has no other field that is not filled from the
    record."""

    def __init__(self, field: str = "value") -> None:
        self.field = field

    def check(self, kind: Kind) -> None:
        names = kind.__struct_fields__
        if names != (self.field,) or fields_of(kind)[self.field].name not in ("bytes", "str"):
            raise WrongUse(
                "SW-KAFKA-FIELD",
                f"RawFormat fills the field {self.field!r}, of type bytes or str; {kind.__name__} has {', '.join(names)}",
                "leave only that field to the format; fill others with timestamp=, key= and headers=",
            )

    def decoder(self, kind: Kind) -> Decoder:
        return _Raw(kind, fields_of(kind)[self.field].name == "str")

    def __repr__(self) -> str:
        return f"RawFormat({self.field!r})"


class _Raw:
    def __init__(self, kind: Kind, is_text: bool) -> None:
        self._kind, self._is_text, self._make = kind, is_text, maker(kind)

    def many(self, values: Sequence[bytes]) -> list[Any]:
        return list(map(self.one, values))

    def one(self, value: bytes) -> Any:
        return self._make(value.decode() if self._is_text else value)

    def columns(self, values: Sequence[bytes]) -> Columns | None:
        made = pa.array(values, pa.binary())
        if made.null_count:
            raise ValueError("a record has no value")
        schema = arrow_schema(self._kind)
        return Columns(self._kind, pa.RecordBatch.from_arrays([made.cast(schema.types[0])], schema=schema))


class FunctionFormat(ValueFormat):
    """A function from the value to an event of exactly the type of the source. What it raises is subject to `on_error`."""

    def __init__(self, function: Callable[[bytes], Event]) -> None:
        self.function = function

    def decoder(self, kind: Kind) -> Decoder:
        return _Function(kind, self.function)

    def __repr__(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__name__)


class _Function:
    def __init__(self, kind: Kind, function: Callable[[bytes], Event]) -> None:
        self._kind, self._function = kind, function

    def many(self, values: Sequence[bytes]) -> list[Any]:
        return list(map(self.one, values))

    def one(self, value: bytes) -> Any:
        event = self._function(value)
        if type(event) is not self._kind:
            raise Misfit(event, self._kind.__name__)
        for name, field in fields_of(self._kind).items():
            try:
                field.build([getattr(event, name)])  # constructors check nothing
            except Misfit as misfit:
                raise Misfit(misfit.value, misfit.expected, name) from None
        return event

    def columns(self, values: Sequence[bytes]) -> Columns | None:
        return None


class AvroFormat(ValueFormat):
    """Avro in the wire format of a schema registry: a byte 0, the number of the writer's schema in 4 bytes, and the value.

    Schemas are fetched from the registry at `url` by their number, once per process. Fields are found by name; fields that the
    event does not have are ignored, those that the schema lacks need a default in the event. `user` is NAME:PASSWORD for the
    registry.
    """

    def __init__(self, url: str, *, user: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.registry = Registry(url, user, headers or {})

    def decoder(self, kind: Kind) -> Decoder:
        from streamwork.connectors.kafka.avro import Avro

        return Avro(kind, self.registry)

    def __repr__(self) -> str:
        return f"AvroFormat({self.registry!r})"


def format_of(given: ValueFormat | str | Callable[[bytes], Event]) -> ValueFormat:
    if isinstance(given, ValueFormat):
        return given
    if given == "json":
        return JsonFormat()
    if given == "raw":
        return RawFormat()
    if callable(given):
        return FunctionFormat(given)
    raise WrongUse(
        "SW-KAFKA-FORMAT",
        f"format={given!r} is not known",
        'use "json", "raw", AvroFormat(url), or a function from bytes to an event',
    )
