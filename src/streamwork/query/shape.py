"""`Shape`: what the rows of a component's state look like to readers. It is made of files, without the job's code.

`views/COMPONENT.parquet` in the job's folder has the columns and the defaults of fields, `graph.json` which of them are the key.
Instance state has the number of the instance, `__instance`, in place of a key.
"""

from __future__ import annotations

import base64
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.components import Record
from streamwork.components.columns import python_values, to_structs
from streamwork.components.field_types import FieldType, Misfit, show
from streamwork.components.schema import field_type, fields_of
from streamwork.components.values import Digits
from streamwork.epoch.savepoints.graph_record import GraphRecord, NodeRecord
from streamwork.errors import Refused, WrongUse
from streamwork.state.view import INSTANCE

DELETED = "__deleted"


@dataclass(frozen=True)
class Shape:
    """Names and types. `schema` has the columns of the key and of the record."""

    component: str
    key: tuple[str, ...]
    schema: pa.Schema
    name: str  # of the record's class
    given: type[Record] | None = None

    def __post_init__(self) -> None:
        if self.given is None:
            return
        theirs = {name: field.arrow for name, field in fields_of(self.given).items()}
        mine = {field.name: field.type for field in self.schema if field.name not in self.key}
        if theirs != mine:
            different = sorted(name for name in {*theirs, *mine} if theirs.get(name) != mine.get(name))
            raise WrongUse(
                "SW-QUERY-TYPE",
                f"{self.given.__name__} is not the record of {self.component}: {', '.join(different)} differ",
                f"pass the record class of {self.component}, or none: then one is made of the stored columns",
            )

    @property
    def is_keyed(self) -> bool:
        return self.key != (INSTANCE,)

    @cached_property
    def key_is_text(self) -> bool:
        """True if the key is one text."""
        return len(self.key) == 1 and pa.types.is_string(self.schema.field(self.key[0]).type)

    @cached_property
    def floats(self) -> tuple[str, ...] | None:
        """The fields of a record that are floats; None if there are floats deeper down."""
        fields = [field for field in self.schema if field.name not in self.key]
        names = tuple(field.name for field in fields if pa.types.is_floating(field.type))
        deep = any("double" in str(field.type) for field in fields if field.name not in names)
        return None if deep else names

    @cached_property
    def record(self) -> type[Record]:
        """The class of its records: the given one, or one that is made of the columns."""
        if self.given is not None:
            return self.given
        columns = [field for field in self.schema if field.name not in self.key]
        return _struct(self.name, columns)

    @cached_property
    def key_fields(self) -> dict[str, FieldType]:
        fields = [self.schema.field(name) for name in self.key]
        return {one.name: field_type(_annotation(one.name, one.type, one.nullable), self.component) for one in fields}

    @cached_property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.key])

    @cached_property
    def scales(self) -> tuple[int | None, ...]:
        kinds = [self.schema.field(name).type for name in self.key]
        return tuple(kind.scale if pa.types.is_decimal(kind) else None for kind in kinds)

    @cached_property
    def key_tuple(self) -> Any:
        """The class of keys that have several parts: tuples with the names of the columns."""
        return namedtuple("Key", [name.lstrip("_") for name in self.key], rename=True)

    @cached_property
    def rows_schema(self) -> pa.Schema:
        """The columns, and the mark of keys that are gone."""
        return self.schema.append(pa.field(DELETED, pa.bool_(), nullable=False))

    # ---- keys -----------------------------------------------------------------------------------------------------

    def parts(self, key: Any, fewer: bool = False) -> tuple[Any, ...]:
        """The parts of a key, checked; with `fewer`, the first ones are enough. Refuses a key of another type (SW-QUERY-KEY)."""
        if isinstance(key, Mapping):
            given = tuple(key[name] for name in self.key if name in key)
            if len(given) != len(key):
                raise self._key_error(f"it has the parts {', '.join(map(str, key))}")
        else:
            given = tuple(key) if isinstance(key, tuple | list) else (key,)
        if len(given) > len(self.key) or (len(given) < len(self.key) and not fewer):
            raise self._key_error(f"it has {len(given)} parts")
        try:
            return tuple(_checked(field, part) for field, part in zip(self.key_fields.values(), given, strict=False))
        except Misfit as misfit:
            raise self._key_error(str(misfit)) from None

    def text_parts(self, texts: Sequence[str]) -> tuple[Any, ...]:
        """The parts of a key that was given as text, as in an address."""
        return self.parts(self.from_plain(tuple(texts)), fewer=True)

    def from_plain(self, given: Any) -> tuple[Any, ...]:
        """The parts of a key as JSON or text has them: times, dates, bytes and Decimals as text."""
        if isinstance(given, Mapping):
            if set(given) - set(self.key):
                raise self._key_error(f"it has the parts {', '.join(map(str, given))}")
            given = [given[name] for name in self.key if name in given]
        parts = list(given) if isinstance(given, tuple | list) else [given]
        if len(parts) > len(self.key):
            raise self._key_error(f"it has {len(parts)} parts")
        kinds = list(self.key_fields.values())
        try:
            return tuple(_of_text(kind, part) for kind, part in zip(kinds, parts, strict=False))
        except (ValueError, ArithmeticError) as error:
            raise self._key_error(str(error)) from None

    def key_batch(self, keys: Sequence[Any]) -> pa.RecordBatch:
        """Keys as columns. Refuses a key of another type."""
        several = len(self.key) > 1
        if several:
            keys = [key if isinstance(key, tuple) and len(key) == len(self.key) else self.parts(key) for key in keys]
        columns = []
        for place, field in enumerate(self.key_fields.values()):
            try:
                columns.append(field.build([key[place] for key in keys] if several else list(keys)))
            except Misfit as misfit:
                raise self._key_error(str(misfit)) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.key_schema)

    def keys_of(self, rows: pa.RecordBatch) -> list[Any]:
        """The keys of rows, as users see them."""
        columns = [python_values(field, rows.column(name)) for name, field in self.key_fields.items()]
        return list(columns[0]) if len(columns) == 1 else list(map(self.key_tuple, *columns))

    def _key_error(self, what: str) -> WrongUse:
        names = ", ".join(f"{name} ({field.name})" for name, field in self.key_fields.items())
        return WrongUse(
            "SW-QUERY-KEY", f"this is no key of {self.component}: {what}", f"a key of {self.component} has: {names}"
        )

    # ---- rows -----------------------------------------------------------------------------------------------------

    def conform(self, table: pa.Table, defaults: Mapping[str, pa.Array]) -> pa.Table:
        """Rows of a state file in these columns. A field that is newer than the file has its default."""
        columns = []
        for field in self.rows_schema:
            if field.name in table.schema.names:
                column = table.column(field.name)
                if column.type != field.type:
                    raise self.misfit(f"{field.name} was {column.type} and is now {field.type}")
            elif field.name in defaults and field.name not in self.key:
                column = defaults[field.name].take(pa.array(np.zeros(table.num_rows, np.int64)))
            else:
                raise self.misfit(f"{field.name} is missing")
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=self.rows_schema)

    def misfit(self, what: str) -> Refused:
        return Refused(
            "SW-STATE-SCHEMA",
            f"the stored state of {self.component} has other columns than the job that has started last: {what}",
            "read this checkpoint with the version of the job that wrote it; newer checkpoints can be read",
        )

    def records_of(self, rows: pa.RecordBatch) -> list[Any]:
        return to_structs(self.record, rows)


def shape_of(node: NodeRecord, columns: pa.Schema, given: type[Record] | None = None) -> Shape:
    """The shape of a component from its entry in the graph and the columns of its rows."""
    assert node.keeps is not None
    key = list(node.ports[0].key or ()) if node.ports else []
    key += [field.name for field in node.sub_key.fields] if node.sub_key is not None else []
    fields = [columns.field(name) for name in (*key, *(field.name for field in node.keeps.fields))]
    if not key:
        key, fields = [INSTANCE], [pa.field(INSTANCE, pa.int64(), nullable=False), *fields]
    return Shape(node.id, tuple(key), pa.schema(fields), node.keeps.name, given)


def stateful(graph: GraphRecord) -> list[NodeRecord]:
    return [node for node in graph.nodes if node.keeps is not None]


def _struct(name: str, columns: Sequence[pa.Field]) -> type[Record]:
    made: Any = msgspec.defstruct(
        name if name.isidentifier() else "Row",
        [(field.name, _annotation(field.name, field.type, field.nullable)) for field in columns],
        bases=(Record,),
        module=__name__,
    )
    return cast(type[Record], made)


def _annotation(name: str, kind: pa.DataType, nullable: bool) -> Any:
    """The annotation whose Arrow type this is."""
    found: Any
    if kind in _SCALARS:
        found = _SCALARS[kind]
    elif pa.types.is_decimal(kind):
        found = Annotated[Decimal, Digits(kind.precision, kind.scale)]
    elif pa.types.is_map(kind):
        found = dict[str, _annotation(name, kind.item_type, kind.item_field.nullable)]  # type: ignore[misc]
    elif pa.types.is_list(kind):
        found = list[_annotation(name, kind.value_type, kind.value_field.nullable)]  # type: ignore[misc]
    elif pa.types.is_struct(kind):
        found = _struct(name.capitalize(), list(kind))
    else:
        raise TypeError(f"{name} has type {kind}, which no field of a record has")
    return found | None if nullable else found


def _checked(field: FieldType, part: Any) -> Any:
    """A part of a key as files hold it: a time in UTC, a Decimal at its scale. Raises Misfit."""
    if type(part) is str and field.arrow == _TEXT and part.isascii():
        return part
    return python_values(field, field.build([part]))[0]


def _of_text(field: FieldType, part: Any) -> Any:
    """A part of a key that came as JSON or text. Raises ValueError or ArithmeticError."""
    kind = field.arrow
    if not isinstance(part, str) or pa.types.is_string(kind):
        return part
    if pa.types.is_binary(kind):
        return base64.b64decode(part.encode(), altchars=b"-_" if set(part) & set("-_") else None, validate=True)
    if pa.types.is_boolean(kind):
        if part not in ("true", "false"):
            raise ValueError(f"{show(part)} is neither true nor false")
        return part == "true"
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(part)
    if pa.types.is_date(kind):
        return date.fromisoformat(part)
    return Decimal(part) if pa.types.is_decimal(kind) else int(part)


_TEXT = pa.string()
_SCALARS: dict[pa.DataType, Any] = {
    pa.string(): str,
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.binary(): bytes,
    pa.timestamp("us", tz="UTC"): datetime,
    pa.date32(): date,
}
