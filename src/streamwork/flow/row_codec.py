"""A few events as bytes, without columns: for small batches, building and reading Arrow costs far more than the events.

Only events whose fields are text, numbers, booleans and times, and whose values have exactly the declared types. All others go as
columns, which also report a value that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.schema import fields_of

MOST_ROWS = 64
_TYPES: dict[Any, type] = {
    pa.string(): str,
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.timestamp("us", "UTC"): datetime,
}
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class RowCodec:
    """Of one type of event."""

    def __init__(self, kind: type[Event], types: dict[str, frozenset[type]]) -> None:
        self._types = types
        self._times = [name for name, known in types.items() if datetime in known]
        self._numbers = [name for name, known in types.items() if int in known]
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(list[kind]).decode  # type: ignore[valid-type]

    @classmethod
    def of(cls, kind: type[Event]) -> RowCodec | None:
        """None if events of this type go as columns."""
        types = {}
        for name, field in fields_of(kind).items():
            if field.arrow not in _TYPES:
                return None
            types[name] = frozenset({_TYPES[field.arrow], *([type(None)] if field.nullable else [])})
        return cls(kind, types)

    def encode(self, events: Sequence[Any]) -> bytes | None:
        """None if a value is not exactly of its type."""
        for event in events:
            for name, known in self._types.items():
                if type(getattr(event, name)) not in known:
                    return None
            if any((at := getattr(event, name)) is not None and at.tzinfo is None for name in self._times):
                return None
            if any((n := getattr(event, name)) is not None and not _LEAST <= n <= _MOST for name in self._numbers):
                return None
        try:
            return self._encode(events)
        except (UnicodeEncodeError, OverflowError):
            return None

    def decode(self, content: Any) -> list[Any]:
        found: list[Any] = self._decode(content)
        return found
