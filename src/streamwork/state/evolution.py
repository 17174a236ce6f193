"""`Evolution`: brings stored rows to the columns that a component's state has now.

Without being asked: a field was added that has a default, a field became optional, a Decimal has more digits at the same
scale, the order of columns changed. On request: a field was renamed (`renamed_from`), a field is dropped, or the author's `migrate`
makes the new record of each row (`schema_version`). All else is a misfit, and refused.

A state file says in its metadata which version of the record wrote it, and which fields its key has. Files of earlier releases do
not: their version is 1, and their key is compared by its columns.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Record
from streamwork.components.defaults import Defaults
from streamwork.components.field_types import Misfit
from streamwork.components.schema import build_column
from streamwork.errors import JobFailed, StreamworkError, described, raised_at

VERSION, KEY = b"streamwork_schema_version", b"streamwork_key"
FIRST = 1
"""The version of a record that declares none."""
DELETED = "__deleted"


@dataclass(frozen=True)
class Misfits:
    """Why rows cannot be used."""

    key: tuple[str, ...] = ()  # about the key: no version of a record can help
    gone: tuple[str, ...] = ()  # fields that are stored, and that the record no longer has
    other: tuple[str, ...] = ()  # other reasons, as text

    def __bool__(self) -> bool:
        return bool(self.key or self.gone or self.other)


class Evolution:
    def __init__(
        self,
        component: str,
        schema: pa.Schema,
        record: type[Record],
        defaults: Defaults,
        key: Collection[str],
        sub_key: Collection[str],
        renamed: Mapping[str, str],
    ) -> None:
        """`renamed` has the fields of key and record: name now -> the name that it had."""
        self._component = component
        self._record = record
        self._defaults = defaults
        self._key = list(key)
        self._keys = [*key, *sub_key]
        self._renamed = renamed
        self.version = record.schema_version
        stamp = {} if self.version == FIRST else {VERSION: str(self.version).encode()}
        self.schema = schema.with_metadata({**stamp, KEY: json.dumps(self._key).encode()})

    # ---- comparing ------------------------------------------------------------------------------------------------

    def is_current(self, stored: pa.Schema) -> bool:
        """True if rows of this schema are as they would be written now, but for the order of columns."""
        same = len(stored) == len(self.schema) and all(
            field.name in stored.names and stored.field(field.name).equals(field) for field in self.schema
        )
        return same and version_of(stored) == self.version and self._key_of(stored) in (None, self._key)

    def changes(self, stored: pa.Schema, drops: Collection[str] = ()) -> list[str]:
        """What is different, of rows that fit; as text."""
        found = []
        if (version := version_of(stored)) != self.version:
            return [f"version {version} is migrated to {self.version}"]
        for field in self.schema:
            was = self._stored_name(field.name, stored)
            if was is None:
                found.append(f"{field.name} ({field.type}) is new, with its default")
                continue
            old = stored.field(was)
            if was != field.name:
                found.append(f"{was} is now {field.name}")
            if old.type != field.type:
                found.append(f"{field.name} was {old.type} and is now {field.type}")
            if field.nullable and not old.nullable:
                found.append(f"{field.name} becomes optional")
        return found + [f"{name} is dropped" for name in drops if name in stored.names]

    def misfits(self, stored: pa.Schema, drops: Collection[str] = ()) -> Misfits:
        """Why rows of this schema cannot be used."""
        key = self._key_misfits(stored)
        version = version_of(stored)
        if version > self.version:
            newer = f"version {version} of {self._record.__name__} wrote it, and this is version {self.version}"
            return Misfits(tuple(key), other=(newer,))
        if version < self.version and self._migrates:
            return Misfits(tuple(key))
        if version < self.version:
            missing = f"{self._record.__name__} has schema_version {self.version} and no migrate()"
            return Misfits(tuple(key), other=(missing,))
        taken = {self._stored_name(name, stored) for name in self.schema.names}
        gone = [
            f"{field.name} ({field.type}) is no longer there"
            for field in stored
            if field.name not in taken and field.name not in drops
        ]
        other = []
        for field in self.schema:
            if field.name in self._keys:
                continue
            was = self._stored_name(field.name, stored)
            if was is None and field.name not in self._defaults:
                other.append(f"{field.name} ({field.type}) is new and has no default")
            elif was is not None:
                other += _type_misfit(field, stored.field(was))
        return Misfits(tuple(key), tuple(gone), tuple(other))

    def _key_misfits(self, stored: pa.Schema) -> list[str]:
        found = []
        for name in self._keys:
            was = self._stored_name(name, stored)
            if was is None:
                found.append(f"{name} ({self.schema.field(name).type}) is new in the key")
            else:
                found += _type_misfit(self.schema.field(name), stored.field(was))
        known = self._key_of(stored)
        if known is None:  # an earlier release wrote it: the columns of the key come first, in its order
            known = [name for name in stored.names if name in {self._stored_name(one, stored) for one in self._keys}]
            wanted = [self._stored_name(name, stored) for name in self._keys]
        else:
            wanted = [self._stored_name(name, stored) for name in self._key]
        if not found and known != wanted:
            found.append(f"the key was {', '.join(known) or 'none'} and is now {', '.join(self._key) or 'none'}")
        return found

    @staticmethod
    def _key_of(stored: pa.Schema) -> list[str] | None:
        text = (stored.metadata or {}).get(KEY)
        return None if text is None else list(json.loads(text))

    def _stored_name(self, name: str, stored: pa.Schema) -> str | None:
        """The name that a column of today has in a stored schema; None if it is not there."""
        if name in stored.names and name not in self._taken_by_others(stored):
            return name
        was = self._renamed.get(name)
        return was if was in stored.names else None

    def _taken_by_others(self, stored: pa.Schema) -> set[str]:
        """The stored columns that have another name now: a new field of that name is not theirs."""
        return {was for name, was in self._renamed.items() if name not in stored.names}

    @property
    def _migrates(self) -> bool:
        return getattr(self._record, "migrate", None) is not None

    # ---- rows -----------------------------------------------------------------------------------------------------

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Stored rows in the columns of today. They must fit; what is no longer wanted is left out."""
        if version_of(rows.schema) != self.version:
            return self._migrated(rows)
        if rows.schema.equals(self.schema, check_metadata=True):
            return rows
        return pa.Table.from_arrays([self._column(field, rows) for field in self.schema], schema=self.schema)

    def _column(self, field: pa.Field, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
        was = self._stored_name(field.name, rows.schema)
        if was is None:
            return self._defaults[field.name].take(pa.array(np.zeros(rows.num_rows, np.int64)))
        column = rows.column(was)
        return column if column.type == field.type else column.cast(field.type)

    def _migrated(self, rows: pa.Table) -> pa.Table:
        """What the author's `migrate` makes of each row; rows of keys that are gone stay as they are."""
        version = version_of(rows.schema)
        stored = [name for name in rows.column_names if not name.startswith("__")]
        records = []
        for piece in rows.to_batches(max_chunksize=1 << 13):
            columns = [_plain(piece.column(name)) for name in stored]
            for gone, *values in zip(piece.column(DELETED).to_pylist(), *columns, strict=True):
                row = dict(zip(stored, values, strict=True))
                records.append(self._record() if gone else self._migrate(row, version))
        try:
            made = {name: build_column(self._record, name, records) for name in self._record.__struct_fields__}
        except Misfit as misfit:
            why = f"gave a record whose {misfit.path} is {misfit.value!r:.200}, not {misfit.expected}"
            raise self._cannot(version, why, {}) from None
        columns = [made[f.name] if f.name in made else self._column(f, rows) for f in self.schema]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _migrate(self, row: dict[str, Any], version: int) -> Record:
        try:
            migrate: Any = self._record.migrate  # type: ignore[attr-defined]
            made = migrate(dict(row), version)
        except StreamworkError:
            raise
        except Exception as error:
            why = f"raised {described(error)}{raised_at(error)[1]}"
            raise self._cannot(version, why, row) from error
        if type(made) is not self._record:
            raise self._cannot(version, f"returned {made!r:.200}, which is no {self._record.__name__}", row)
        return made

    def _cannot(self, version: int, why: str, row: Mapping[str, Any]) -> JobFailed:
        key = ", ".join(
            f"{name}={row[name]!r:.100}" for name in row if name in (self._renamed.get(k, k) for k in self._keys)
        )
        of = f" for key {key}" if key else ""
        return JobFailed(
            "SW-STATE-MIGRATE",
            f"migrate() of {self._record.__name__}, the state of {self._component}, {why}{of} (from version {version})",
            "correct it and start again, or go back to the code that wrote the state: the state is as it was",
            retryable=False,
        )


def version_of(stored: pa.Schema) -> int:
    """The version of the record that wrote rows of this schema."""
    return int((stored.metadata or {}).get(VERSION, FIRST))


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """True if each value of the old type is one of the new type: Decimals with more digits at the same scale, also in lists."""
    if old == new:
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return old.value_field.nullable == new.value_field.nullable and widens(old.value_type, new.value_type)
    return False


def _type_misfit(field: pa.Field, old: pa.Field) -> list[str]:
    if not widens(old.type, field.type):
        return [f"{field.name} was {old.type} and is now {field.type}"]
    if old.nullable and not field.nullable:
        return [f"{field.name} was optional and no longer is"]
    return []


def _plain(column: pa.Array) -> list[Any]:
    """The values as an operator would see them."""
    values = column.to_pylist(maps_as_pydicts="strict")
    if pa.types.is_timestamp(column.type):
        return [value.astimezone(UTC) if isinstance(value, datetime) else value for value in values]
    return list(values)
