"""Events as JSON text, and back, without loss: what msgspec writes, and numbers that JSON has no word for as text."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

E = TypeVar("E", bound=msgspec.Struct)


def to_text(event: Any) -> str:
    """An event or a record; or, as it is, text that could not be made an event."""
    if isinstance(event, str):
        return event
    text = msgspec.json.encode(event)
    if b"null" in text:  # NaN and infinity are written so, too: only then is the slow way needed
        text = msgspec.json.encode(_named(msgspec.to_builtins(event)))
    return text.decode()


def from_text(kind: type[E], text: str) -> E:
    """Raises msgspec.ValidationError if the text is not, or no longer, of this type."""
    return msgspec.convert(msgspec.json.decode(text), kind, strict=False)


def _named(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # "nan", "inf", "-inf"
    if isinstance(value, dict):
        return {_named(key): _named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    return value
