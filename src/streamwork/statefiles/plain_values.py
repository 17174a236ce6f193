"""Values of state as JSON and as text.

bytes                        base64
Decimal, date, datetime      text; a datetime in UTC, as 2026-01-02T03:04:05.000006Z
NaN, Infinity, -Infinity     these words, since JSON has no such numbers
list, dict, nested events    lists and objects
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

PIECE = 4_096


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value that Arrow gives, as JSON holds it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if pa.types.is_map(kind):
        return {str(key): plain(item, kind.item_type) for key, item in value}
    if isinstance(value, dict):
        return {name: plain(item, kind.field(name).type) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item, kind.value_type) for item in value]
    return str(value)


def plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Every row, name -> value. The columns have names that differ."""
    kinds = {field.name: field.type for field in table.schema}
    for batch in table.to_batches(max_chunksize=PIECE):
        columns = {name: batch.column(name).to_pylist() for name in kinds}
        for place in range(batch.num_rows):
            yield {name: plain(values[place], kinds[name]) for name, values in columns.items()}


def plain_lists(table: pa.Table) -> Iterator[list[Any]]:
    """Every row, its values in the order of the columns, of which several may have one name."""
    kinds = [field.type for field in table.schema]
    for batch in table.to_batches(max_chunksize=PIECE):
        columns = [column.to_pylist() for column in batch.columns]
        for place in range(batch.num_rows):
            yield [plain(values[place], kind) for values, kind in zip(columns, kinds, strict=True)]


def text_of(value: Any) -> str:
    """A value of `plain` as a person reads it."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode()
