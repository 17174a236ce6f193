"""Avro values in the wire format of a schema registry, decoded with the schema of their writer."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from streamwork.components.columns import Columns, check_entered
from streamwork.connectors.address import needed
from streamwork.connectors.kafka.registry import Registry

_MAGIC, _HEAD = 0, 5
_schemas: dict[tuple[str, int], Any] = {}
"""Parsed schemas by registry and number, per process."""


class Avro:
    def __init__(self, kind: type[msgspec.Struct], registry: Registry) -> None:
        self._kind, self._registry = kind, registry
        needed("fastavro", "kafka")

    def many(self, values: Sequence[bytes]) -> list[Any]:
        events: list[Any] = msgspec.convert([self._plain(value) for value in values], list[self._kind])  # type: ignore[name-defined]
        check_entered(self._kind, events)
        return events

    def one(self, value: bytes) -> Any:
        event = msgspec.convert(self._plain(value), self._kind)
        check_entered(self._kind, [event])
        return event

    def columns(self, values: Sequence[bytes]) -> Columns | None:
        return None

    def _plain(self, value: bytes) -> Any:
        if len(value) < _HEAD or value[0] != _MAGIC:
            raise ValueError(
                "the value does not begin with the number of a schema, as a schema registry's clients write it"
            )
        import fastavro

        schema = self._schema(int.from_bytes(value[1:_HEAD], "big"))
        body = io.BytesIO(value)
        body.seek(_HEAD)
        try:
            found = fastavro.schemaless_reader(body, schema, None)
        except (EOFError, IndexError, struct.error, KeyError, TypeError) as error:
            raise ValueError(f"the value does not fit the schema it names: {type(error).__name__}: {error}") from None
        if body.read(1):
            raise ValueError("the value is longer than the schema it names")
        return found

    def _schema(self, number: int) -> Any:
        import fastavro

        key = (self._registry.url, number)
        if key not in _schemas:
            names: dict[str, Any] = {}  # of the schemas before, to which the later ones refer
            parsed = [fastavro.parse_schema(msgspec.json.decode(text), names) for text in self._registry.schema(number)]
            _schemas[key] = parsed[-1]
        return _schemas[key]
