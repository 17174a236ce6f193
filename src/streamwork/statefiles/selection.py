"""Which rows of a component's state are shown: by key, by the beginning of a key, or a number of them.

A key is given as text, which has the type of the key's column. A key of several fields is given field by field, FIELD=VALUE; fields
that are left out may have any value, so that all sub-keys of a key can be shown. `--key-json` can say null.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.errors import WrongUse
from streamwork.statefiles.component_state import ComponentState, in_order


class Selection(msgspec.Struct, frozen=True):
    """`key` is what `--key` gives, `key_json` an object of values by field."""

    key: tuple[str, ...] = ()
    key_json: str = ""
    prefix: str | None = None

    def of(self, state: ComponentState) -> pa.Table:
        """The rows, in the order of their keys."""
        table = state.unordered
        for name, value in self._wanted(state, table.schema).items():
            table = table.filter(_equals(table.column(name), value))
        if self.prefix is not None:
            first = state.shape.identity[0]
            if not pa.types.is_string(table.schema.field(first).type):
                raise WrongUse("SW-STATE-KEY", f"--prefix: {first} of {state.shape.component} is no text", "use --key")
            table = table.filter(pc.fill_null(pc.starts_with(table.column(first), self.prefix), False))
        return in_order(table, state.shape.identity)

    def _wanted(self, state: ComponentState, schema: pa.Schema) -> Mapping[str, Any]:
        names = state.shape.identity
        given: dict[str, Any] = {}
        if self.key_json:
            try:
                given.update(msgspec.json.decode(self.key_json, type=dict[str, Any]))
            except msgspec.DecodeError as error:
                raise WrongUse("SW-STATE-KEY", f"--key-json is no JSON object ({error})", _how(names)) from None
        for text in self.key:
            name, equals, value = text.partition("=")
            if len(names) == 1:
                name, value = names[0], text
            elif not equals:
                raise WrongUse("SW-STATE-KEY", f"--key {text} names no field", _how(names))
            if name in given:
                raise WrongUse("SW-STATE-KEY", f"--key gives {name} twice", _how(names))
            given[name] = value
        if unknown := [name for name in given if name not in names]:
            raise WrongUse("SW-STATE-KEY", f"{state.shape.component} has no key field {unknown[0]!r}", _how(names))
        return {name: typed(name, value, schema.field(name).type) for name, value in given.items()}


def _how(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"give the value of {names[0]}: --key VALUE"
    return f"give fields of the key, each in a --key of its own: {', '.join(f'{name}=VALUE' for name in names)}"


def _equals(column: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    if value is None:
        return column.is_null()
    return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)


def typed(name: str, value: Any, kind: pa.DataType) -> Any:
    """A value of a key, given as text or as JSON has it, as Python has it. Refuses one that is not of the type."""
    if value is None:
        return None
    try:
        found = _typed(value if isinstance(value, str) else msgspec.json.encode(value).decode(), kind)
        pa.scalar(found, kind)
    except (ValueError, OverflowError, InvalidOperation, binascii.Error, pa.ArrowInvalid, pa.ArrowTypeError):
        raise WrongUse(
            "SW-STATE-KEY",
            f"{value!r} is no value of key field {name} ({kind})",
            "give a whole number, true or false, text, base64 of bytes, 2026-01-02, or 2026-01-02T03:04:05Z, as the type asks",
        ) from None
    return found


def _typed(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_binary(kind):
        return base64.b64decode(text, validate=True)
    if pa.types.is_timestamp(kind):
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_null(kind):
        raise ValueError(text)
    return text


def some(table: pa.Table, limit: int | None) -> pa.Table:
    """The first rows."""
    return table if limit is None else table.slice(0, limit)
