"""The schemas that the segments of a log may have, oldest first.

``log.json`` holds the first schema. A class fits the log if it has the fields of the first schema, if every other field has a
default, and if fields have the types that the log's schemas give them. A writer whose class has a new schema adds it:

    1  create ``LOG/schemas/N.json``, durably and only if it does not exist; it never changes
    2  begin a new segment, with the new schema at its beginning, in each partition that it appends to

A crash between 1 and 2 leaves a schema without segments. Writers with another class keep their schema, in segments of
their own. Readers convert each batch to the schema of their class: a column that the segment lacks is filled with the default,
a column that the class lacks is left out. A segment whose schema is in none of these files is damaged.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.defaults import Defaults, default_of
from streamwork.components.field_types import Misfit
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.errors import Refused
from streamwork.log.settings import Settings
from streamwork.world import Disk

FOLDER = "schemas"
_NAME = re.compile(r"([1-9][0-9]{0,5})\.json", re.ASCII)
_DAMAGED = "restore the file from a backup; it never changes after it is created"


class Version(msgspec.Struct, frozen=True):
    """A schema that segments may begin with, and its serialized bytes."""

    schema: pa.Schema
    prologue: bytes

    @classmethod
    def of(cls, schema: pa.Schema) -> Version:
        return cls(schema, schema.serialize().to_pybytes())


class _Stored(msgspec.Struct, frozen=True):
    """``schemas/N.json``. `fields` is for display. Programs read `arrow` (IPC schema) and `defaults` (IPC stream of one row)."""

    event: str
    fields: dict[str, str]
    arrow: str
    defaults: str
    crc32: str = ""  # of this object's JSON with crc32 empty

    def sealed(self) -> _Stored:
        return msgspec.structs.replace(self, crc32=self._sum())

    def is_whole(self) -> bool:
        return self.crc32 == self._sum()

    def _sum(self) -> str:
        return f"{zlib.crc32(msgspec.json.encode(msgspec.structs.replace(self, crc32=''))):08x}"


class Schemas:
    """The schemas of one log, as of the last `refresh`."""

    def __init__(self, disk: Disk, log: Path, settings: Settings) -> None:
        self.versions = [Version.of(settings.schema)]
        self._event = settings.event
        self._defaults: dict[str, pa.Array] = {}  # as they are stored
        self._disk = disk
        self._log = log
        self.refresh()

    @property
    def whole(self) -> pa.Schema:
        """A schema with the fields of all schemas."""
        fields = {field.name: field for version in self.versions for field in version.schema}
        return pa.schema(list(fields.values()))

    @property
    def defaults(self) -> Defaults:
        """The values of fields that were added later, for readers without the class."""
        return self._defaults

    def refresh(self) -> bool:
        """Read the schemas that were added since the last refresh. True if there are any."""
        known = len(self.versions)
        numbers = {int(match[1]) for name in self._disk.names(self._log / FOLDER) if (match := _NAME.fullmatch(name))}
        while (number := len(self.versions) + 1) in numbers:
            stored = self._read(number)
            self._event = stored.event
            self.versions.append(Version.of(_schema(stored.arrow)))
            for field, values in _one_row(stored.defaults).items():
                self._defaults.setdefault(field, values)  # the first default applies, even if a later class has another
        return len(self.versions) > known

    def check(self, event: type[Event], subset: bool = False) -> bool:
        """True if the class has one of the schemas, False if it fits with a new one. Raises SW-LOG-SCHEMA if it does not fit. A
        reader's class may have a `subset` of the fields.
        """
        mine = arrow_schema(event)
        if any(mine.equals(version.schema) for version in self.versions):
            return True
        wrong = _differences(event, self.versions[0].schema, self.whole, subset)
        if not wrong:
            return False
        raise Refused(
            "SW-LOG-SCHEMA",
            f"the log {self._log} holds {self._event}, which differs from the given {event.__name__}: {'; '.join(wrong)}",
            "use the class that the log was created with; it may have further fields if each has a default, and a reader with "
            "subset=True may leave fields out. For any other change, create a new log and copy the events",
        )

    def add(self, event: type[Event]) -> None:
        """Add the schema of `event` to the log if the log does not have it. Several writers may do so at the same time."""
        while not self.check(event):
            schema, fields = arrow_schema(event), fields_of(event)
            added = [name for name in schema.names if name not in self.versions[0].schema.names]
            row = {name: fields[name].build([default_of(event, name)]) for name in added}
            shown = {field.name: _shown(field) for field in schema}
            arrow = base64.b64encode(schema.serialize().to_pybytes()).decode()
            stored = _Stored(event.__name__, shown, arrow, _encoded(row)).sealed()
            self._disk.make_folder(self._log / FOLDER)
            try:
                self._disk.create(self._path(len(self.versions) + 1), msgspec.json.encode(stored) + b"\n")
            except FileExistsError:
                """Another writer has added a schema: read it, and check again."""
            self.refresh()

    def _path(self, number: int) -> Path:
        return self._log / FOLDER / f"{number}.json"

    def _read(self, number: int) -> _Stored:
        path = self._path(number)
        try:
            stored = msgspec.json.decode(self._disk.read(path), type=_Stored)
            if stored.is_whole():
                return stored
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        raise Refused("SW-LOG-DAMAGED", f"{path} is damaged, or was edited by hand", _DAMAGED)


def _differences(event: type[Event], first: pa.Schema, whole: pa.Schema, subset: bool) -> list[str]:
    """The reasons why a class does not fit a log with these fields; empty if it fits."""
    here, there = ({field.name: _shown(field) for field in one} for one in (arrow_schema(event), whole))
    wrong = [
        f"{name}: {there[name]} in the log, {here.get(name, 'absent')} in {event.__name__}"
        for name in sorted(there)
        if here.get(name, there[name]) != there[name] or (name in first.names and name not in here and not subset)
    ]
    for name in sorted(here.keys() - set(first.names)):
        default = default_of(event, name)
        if default is msgspec.NODEFAULT:
            wrong.append(f"{name}: absent in the log, {here[name]} without a default in {event.__name__}")
            continue
        try:
            fields_of(event)[name].build([default])
        except Misfit as misfit:
            wrong.append(f"{name}: the default of {event.__name__}.{name} does not fit: {misfit}")
    return wrong


def _shown(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _encoded(row: Mapping[str, pa.Array]) -> str:
    batch = pa.RecordBatch.from_arrays(list(row.values()), names=list(row))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def _one_row(text: str) -> Mapping[str, pa.Array]:
    batch = pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text))).read_next_batch()
    return dict(zip(batch.schema.names, batch.columns, strict=True))
