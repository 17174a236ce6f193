"""``log.json``: the settings that are fixed when a log is created."""

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
    """The contents of ``log.json``. `fields` is for display. Programs read `arrow` (the IPC schema message, base64)."""

    format: int
    event: str
    key: tuple[str, ...]  # empty: batches are distributed round robin
    groups: int
    partitions: int
    policy: Policy
    fields: dict[str, str]
    arrow: str
    crc32: str = ""  # of this object's JSON with crc32 empty
    # random: distinguishes a log from one created later in the same place; empty in logs of an older version
    id: str = ""

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
                f"set partitions to at least 1 and at most groups, and groups to at most {MAX_PARTITIONS}",
            )
        if problem := policy.problem():
            raise WrongUse("SW-LOG-SETTING", problem, "pass a number above 0, or omit it for no limit")
        schema = arrow_schema(event)
        if not schema.names:
            raise WrongUse("SW-LOG-SETTING", f"{event.__name__} has no fields", "use an event type with fields")
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
                f"{path} holds no log",
                "check the path, or create a log: EventLog.create(...) or "
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
                "restore the file from a backup; it never changes after the log is created",
            )
        return settings
