"""``log.json``: what is fixed when a log is made."""

from __future__ import annotations

import base64
import shlex
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.keys import Key
from streamwork.components.schema import arrow_schema
from streamwork.errors import Refused, WrongUse
from streamwork.log.policy import Policy
from streamwork.world import Disk

FILE = "log.json"
FORMAT = 1
MAX_PARTITIONS = 1 << 15


class Settings(msgspec.Struct, frozen=True):
    """The contents of ``log.json``. `fields` is for people, `arrow` (the IPC schema message, base64) for programs."""

    format: int
    event: str
    key: tuple[str, ...]  # empty: batches go round the partitions
    groups: int
    partitions: int
    policy: Policy
    fields: dict[str, str]
    arrow: str
    crc32: str = ""  # of this object's JSON with crc32 empty
    id: str = ""  # random: a log that is made again in the same place is another one; empty in logs of an older version

    @classmethod
    def of(
        cls,
        event: type[Event],
        key: str | tuple[str, ...] | None,
        partitions: int,
        groups: int,
        policy: Policy,
        identity: str = "",
    ) -> Settings:
        """Settings for a new log, checked."""
        fields = () if key is None else Key.of(event, key).fields
        if not (1 <= partitions <= groups <= MAX_PARTITIONS):
            raise WrongUse(
                "SW-LOG-SETTING",
                f"partitions={partitions}, groups={groups}",
                f"partitions must be at least 1 and at most groups, groups at most {MAX_PARTITIONS}",
            )
        if problem := policy.problem():
            raise WrongUse("SW-LOG-SETTING", problem, "give a number above 0, or leave it out for no limit")
        schema = arrow_schema(event)
        if not schema.names:
            raise WrongUse("SW-LOG-SETTING", f"{event.__name__} has no fields", "a log needs events with fields")
        shown = {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in schema}
        arrow = base64.b64encode(schema.serialize().to_pybytes()).decode()
        return cls(FORMAT, event.__name__, fields, groups, partitions, policy, shown, arrow, id=identity)

    def encode(self) -> bytes:
        stored = msgspec.json.decode(msgspec.json.encode(self), type=Settings)  # 60 given as an age is kept as 60.0
        whole = msgspec.structs.replace(stored, crc32=stored._sum())
        return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"

    def _sum(self) -> str:
        content = msgspec.to_builtins(msgspec.structs.replace(self, crc32=""))
        if not self.id:
            del content["id"]
        return f"{zlib.crc32(msgspec.json.encode(content)):08x}"

    @property
    def schema(self) -> Any:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.arrow)))

    @classmethod
    def read(cls, disk: Disk, path: Path) -> Settings:
        """The settings of the log in folder `path`."""
        try:
            data = disk.read(path / FILE)
        except (FileNotFoundError, NotADirectoryError):
            raise WrongUse(
                "SW-LOG-MISSING",
                f"there is no log in {path}",
                "check the path, or make one: EventLog.create(...) or "
                f"`streamwork log create {shlex.quote(str(path))} --event FILE.py:CLASS`",
            ) from None
        try:
            settings = msgspec.json.decode(data, type=cls)
            good = settings.crc32 == settings._sum() and settings.format == FORMAT
        except (msgspec.DecodeError, UnicodeDecodeError):
            good = False
        if not good:
            raise Refused(
                "SW-LOG-DAMAGED",
                f"{path / FILE} is damaged, was edited by hand or comes from another version",
                "bring the file back from a copy; it never changes after the log is made",
            )
        return settings
