"""Defaults for rows that were stored before their class got new fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.components.field_types import Misfit
from streamwork.components.schema import arrow_schema, fields_of

Defaults = Mapping[str, pa.Array]
"""Field -> an array of one value."""

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


class Conform:
    """Converts rows to one schema, by the names of columns."""

    def __init__(self, schema: pa.Schema, defaults: Defaults) -> None:
        self._schema = schema
        self._defaults = defaults

    @classmethod
    def to(cls, kind: type[msgspec.Struct]) -> Conform:
        """The schema and the defaults of a class."""
        return cls(arrow_schema(kind), defaults_of(kind))

    def __call__(self, rows: Rows) -> Rows:
        if rows.schema.equals(self._schema):
            return rows
        columns = [
            rows.column(name) if name in rows.schema.names else self._filled(name, rows.num_rows)
            for name in self._schema.names
        ]
        return type(rows).from_arrays(columns, schema=self._schema)

    def _filled(self, name: str, rows: int) -> pa.Array:
        return self._defaults[name].take(pa.array(np.zeros(rows, np.int64)))


def defaults_of(kind: type[msgspec.Struct]) -> dict[str, pa.Array]:
    """The defaults of the fields that have a fitting one."""
    fields, found = fields_of(kind), {}
    for name, field in fields.items():
        if (default := default_of(kind, name)) is not msgspec.NODEFAULT:
            try:
                found[name] = field.build([default])
            except Misfit:  # an error only if it is needed
                continue
    return found


def default_of(kind: type[msgspec.Struct], name: str) -> Any:
    """The value of a field that is not given, or msgspec.NODEFAULT."""
    field = next(one for one in msgspec.structs.fields(kind) if one.name == name)
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
