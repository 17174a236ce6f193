"""Builds an Event type from an Arrow schema, for programs that read a log without its class."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from streamwork.components import Digits, Event
from streamwork.components.schema import arrow_schema
from streamwork.errors import Refused


def event_type(name: str, schema: pa.Schema) -> type[Event]:
    """The Event type whose Arrow schema is `schema`."""
    kind = _struct(name, list(schema))
    if not arrow_schema(kind).equals(schema):
        raise Refused(
            "SW-LOG-SCHEMA",
            f"no Event type has the schema of {name}",
            "open the log with the class it was created with",
        )
    return kind


def _struct(name: str, fields: list[Any]) -> type[Event]:
    made = msgspec.defstruct(
        name,
        [(field.name, _annotation(field, name)) for field in fields],
        bases=(Event,),
        module=__name__,
        frozen=True,
        gc=False,
    )
    assert issubclass(made, Event)
    return made


def _annotation(field: Any, owner: str) -> Any:
    plain = _plain(field.type, f"{owner}_{field.name}")
    return plain | None if field.nullable else plain


def _plain(kind: Any, name: str) -> Any:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if pa.types.is_decimal128(kind):
        return Annotated[Decimal, Digits(kind.precision, kind.scale)]
    if pa.types.is_list(kind):
        return list[_annotation(kind.value_field, name)]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[str, _annotation(kind.item_field, name)]  # type: ignore[misc]
    if pa.types.is_struct(kind):
        return _struct(name, [kind.field(place) for place in range(kind.num_fields)])
    raise Refused(
        "SW-LOG-SCHEMA", f"{name} has the Arrow type {kind}, which no event field can have", "update Streamwork"
    )


_SCALARS: dict[Any, Any] = {
    pa.string(): str,
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.binary(): bytes,
    pa.timestamp("us", tz="UTC"): datetime,
    pa.date32(): date,
}
