"""Values of events as text, for targets without a matching type. All sinks use the same format.

datetime    ISO 8601 in UTC, 2026-01-02T03:04:05+00:00
date        ISO 8601, 2026-01-02
Decimal     plain, with all digits of its scale
list, dict, nested event    JSON, with bytes as base64, and the floats that JSON lacks as "nan", "inf" and "-inf"
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa


def with_text(column: pa.Array) -> list[Any]:
    """The values of a column: numbers, text, bytes and booleans unchanged, others as text."""
    values = column.to_pylist()
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type) or pa.types.is_nested(column.type):
        return [value if value is None else _text(value, column.type) for value in values]
    return list(values)


def _text(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_nested(kind):
        return msgspec.json.encode(plain_json(value, kind)).decode()
    return format(value, "f") if isinstance(value, Decimal) else str(value.isoformat())


def plain_json(value: Any, kind: pa.DataType) -> Any:
    """The value for JSON: Arrow returns a map as a list of pairs, which becomes an object."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: plain_json(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [plain_json(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: plain_json(value[field.name], field.type) for field in kind}
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_bytes(value: Any) -> Any:
    """Text in UTF-8, numbers in decimal, booleans as true and false, bytes as they are; None stays None."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return (value if isinstance(value, str) else repr(value)).encode()


def joined_keys(columns: Sequence[Iterable[bytes]]) -> Iterator[bytes]:
    """The key of each row, of the values of its key fields: several are joined by a colon."""
    if len(columns) == 1:
        return iter(columns[0])
    return (b":".join(map(_escaped, key)) for key in zip(*columns, strict=True))


def _escaped(part: bytes) -> bytes:
    return part.replace(b"%", b"%25").replace(b":", b"%3A")
