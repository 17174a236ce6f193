"""Sealed files: JSON that carries the hash of its own content, its `seal`, so that one copy alone shows whether it is whole."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.components.position import from_plain, plain
from streamwork.world import Disk, FileKind, damaged, read_whole

T = TypeVar("T", bound=msgspec.Struct)


def to_bytes(value: msgspec.Struct) -> bytes:
    """Readable JSON. The same value always gives the same bytes. A struct with a field `seal` is sealed."""
    if "seal" in value.__struct_fields__:
        value = msgspec.structs.replace(value, seal="")
        value = msgspec.structs.replace(value, seal=hashlib.sha256(_json(value)).hexdigest())
    return _json(value)


def read_sealed(disk: Disk, path: Path, content: type[T], kind: FileKind) -> T:
    """The value that a file holds. Refuses a file that is missing, cannot be decoded or was changed."""
    return decode_sealed(path, read_whole(disk.read, path, kind), content, kind)


def decode_sealed(path: Path, data: bytes, content: type[T], kind: FileKind) -> T:
    """The value in `data`, which was read from `path`. Refuses like `read_sealed`."""
    try:
        value = msgspec.json.decode(data, type=content, dec_hook=from_plain)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(kind, path, f"cannot be read ({error})") from None
    if to_bytes(value) != data:
        raise damaged(kind, path, "was changed: its content does not match its seal")
    return value


def _json(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted", enc_hook=plain), indent=1) + b"\n"
