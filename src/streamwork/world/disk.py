"""File operations, through a disk that is passed in. Each operation states what is durable when it returns.

A name that was created, replaced or removed is durable when the call returns: the file is synced first, then its folder.
Bytes written through a `DiskFile` are durable after its `sync()`, not before.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from streamwork.world.temporary import PREFIX, remove_abandoned, temporary


class DiskFile(Protocol):
    """A file open for appending."""

    def write(self, data: Any) -> int:
        """Append bytes (or any buffer). A crash before `sync` may lose them."""

    def sync(self) -> None:
        """Make everything written so far durable."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes. The next write appends there."""

    def tell(self) -> int: ...

    def close(self) -> None:
        """Close without `sync`."""

    def __enter__(self) -> DiskFile: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Disk(Protocol):
    def read(self, path: Path) -> bytes: ...

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer at the end of the file. Safe while others append and truncate."""

    def map(self, path: Path) -> pa.Buffer:
        """The file's current bytes, mapped. Access only bytes that no process truncates."""

    def size(self, path: Path) -> int: ...

    def exists(self, path: Path) -> bool: ...

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder, without temporary files; empty if the folder does not exist."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably. Does nothing if it exists."""

    def create(self, path: Path, data: bytes) -> None:
        """Create a file with this content, atomically and durably. Raises FileExistsError if the name is taken."""

    def replace(self, path: Path, data: bytes) -> None:
        """Create or replace a file, atomically and durably."""

    def remove(self, path: Path) -> None:
        """Remove a file, durably. Does nothing if it does not exist."""

    def discard(self, path: Path) -> None:
        """Remove a file, not durably: after a crash it may exist again. Does nothing if it does not exist."""

    def move(self, path: Path, target: Path) -> None:
        """Rename a file, durably. Replaces an existing `target`, whose folder must exist."""

    def sync(self, path: Path) -> None:
        """Make a file's bytes durable, also those of other processes. Raises FileNotFoundError if it does not exist."""

    def sync_names(self, folder: Path) -> None:
        """Make the names in a folder durable, also those of other processes. Does nothing if the folder does not exist."""

    def open_append(self, path: Path) -> DiskFile:
        """Open for appending. The *name* of a new file is durable when this returns."""

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder with all that is in it. A crash may leave any part of it. Does nothing if it does not exist."""

    def remove_abandoned(self, folder: Path, *, below: bool = False) -> None:
        """Remove the temporary files that `create` and `replace` of dead processes left in a folder. With `below`, also in its
        subfolders. Not durable: after a crash they may exist again.
        """


class RealDisk:
    """The machine's file systems."""

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def read_at(self, path: Path, position: int, size: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, size, position)
        finally:
            os.close(descriptor)

    def map(self, path: Path) -> pa.Buffer:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if found.st_size == 0:  # an empty file cannot be mapped
            return pa.py_buffer(b"")
        with pa.memory_map(str(path)) as mapped:
            return mapped.read_buffer()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def exists(self, path: Path) -> bool:
        return path.exists()

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(name for name in os.listdir(folder) if not name.startswith(PREFIX))  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        self._sync_folder(folder.parent)

    def create(self, path: Path, data: bytes) -> None:
        with self._written(path.parent, data) as made:
            os.link(made, path)  # unlike rename, fails where the name is taken
        self._sync_folder(path.parent)

    def replace(self, path: Path, data: bytes) -> None:
        with self._written(path.parent, data) as made:
            made.replace(path)
        self._sync_folder(path.parent)

    def discard(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def move(self, path: Path, target: Path) -> None:
        path.replace(target)
        self._sync_folder(target.parent)
        self._sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            self._sync_folder(path.parent)

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_names(self, folder: Path) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._sync_folder(folder)

    def open_append(self, path: Path) -> RealDiskFile:
        is_new = not path.exists()
        opened = RealDiskFile(path)
        if is_new:
            self._sync_folder(path.parent)
        return opened

    def remove_tree(self, folder: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
            self._sync_folder(folder.parent)

    def remove_abandoned(self, folder: Path, *, below: bool = False) -> None:
        remove_abandoned(folder, below)

    @contextlib.contextmanager
    def _written(self, folder: Path, data: bytes) -> Iterator[Path]:
        with temporary(folder) as (path, descriptor):
            file = RealDiskFile(path, descriptor)
            file.write(data)
            file.sync()
            yield path

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class RealDiskFile:
    """A `DiskFile` over a file descriptor, unbuffered: other processes can read what was written immediately."""

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        """`descriptor`: the file's, if it is already open."""
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o644) if descriptor is None else descriptor
        self._size = os.fstat(self._descriptor).st_size
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += os.write(self._descriptor, view[written:])
        self._size += written
        return written

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._descriptor)

    def __enter__(self) -> RealDiskFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
