"""Files that a manifest names: written once, recorded with their hash, checked against it whenever they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from streamwork.errors import Refused
from streamwork.world.disk import Disk
from streamwork.world.inside import check_relative, inside

Data = bytes  # `bytes` is a field below
Content = TypeVar("Content")


@dataclass(frozen=True)
class FileKind:
    """What the files of one kind have in common when one of them is damaged."""

    code: str
    action: str
    noun: str = ""  # precedes the path in messages


class FileRef(msgspec.Struct, frozen=True):
    """A file below a job's folder: its path, the hash of its content, its number of rows and its size."""

    path: str
    sha256: str
    rows: int
    bytes: int

    def __post_init__(self) -> None:
        check_relative(self.path)
        if self.rows < 0 or self.bytes < 0:
            raise ValueError(f"{self.path!r} has a negative number of rows or bytes")

    @classmethod
    def write(cls, disk: Disk, folder: Path, path: str, data: Data, rows: int) -> FileRef:
        """Create a file, durably. Raises FileExistsError if the name is taken."""
        target = inside(folder, path)
        disk.make_folder(target.parent)
        disk.create(target, data)
        return cls(path, hashlib.sha256(data).hexdigest(), rows, len(data))

    def read(self, disk: Disk, folder: Path, kind: FileKind) -> Data:
        """The content. Refuses a file that is missing or was changed."""
        data: Data = self._checked(disk.read, folder, kind)
        return data

    def map(self, disk: Disk, folder: Path, kind: FileKind) -> pa.Buffer:
        """The content, not copied. Refuses like `read`."""
        return self._checked(disk.map, folder, kind)

    def _checked(self, read: Callable[[Path], Any], folder: Path, kind: FileKind) -> Any:
        path = inside(folder, self.path)
        data = read_whole(read, path, kind)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise damaged(kind, path, "is not what its checkpoint recorded (its sha256 differs)")
        return data


def read_whole(read: Callable[[Path], Content], path: Path, kind: FileKind) -> Content:
    """The content of a file that must exist, by `Disk.read` or `Disk.map`."""
    try:
        return read(path)
    except FileNotFoundError:
        raise damaged(kind, path, "is missing") from None
    except IsADirectoryError:
        raise damaged(kind, path, "is a folder, not a file") from None


def damaged(kind: FileKind, path: Path, what: str) -> Refused:
    """The error for a file that is missing, was changed or cannot be decoded."""
    return Refused(kind.code, f"{kind.noun} {path} {what}".lstrip(), kind.action)
