"""Values of events as text, for targets without a matching type. All sinks use the same format.

datetime    ISO 8601 in UTC, 2026-01-02T03:04:05+00:00
date        ISO 8601, 2026-01-02
Decimal     plain, with all digits of its scale
list, dict, nested event    JSON, with bytes as base64, and the floats that JSON lacks as "nan", "inf" and "-inf"
"""

from __future__ import annotations

import math
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
        return msgspec.json.encode(_plain(value, kind)).decode()
    return format(value, "f") if isinstance(value, Decimal) else str(value.isoformat())


def _plain(value: Any, kind: pa.DataType) -> Any:
    """The value for JSON: Arrow returns a map as a list of pairs, which becomes an object."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
