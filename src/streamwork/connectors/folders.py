"""The file operations of ParquetSink. Each is atomic; tests crash between any two."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.world.temporary import remove_abandoned, temporary

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of renameat2, which only Linux has


class Folders:
    """A written file is durable when the call returns; a name is durable after `sync` of its folder."""

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def make(self, folder: Path) -> None:
        """Create a folder. Raises FileExistsError, or FileNotFoundError without its parent: parents are never created."""
        folder.mkdir()

    def write(self, path: Path, data: bytes) -> None:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def write_rows(self, path: Path, schema: pa.Schema, pieces: Iterator[pa.RecordBatch]) -> None:
        with path.open("wb") as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for piece in pieces:
                    writer.write_batch(piece)
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def temporary(self, folder: Path) -> Iterator[Path]:
        """An empty file with a name that readers ignore, to be written and renamed. The end of the block removes it."""
        with temporary(folder) as (path, _):
            yield path

    def remove_abandoned(self, folder: Path) -> None:
        """Remove the temporary files of dead processes."""
        remove_abandoned(folder, below=False)

    def sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        """Raises FileNotFoundError if `path` does not exist. A file replaces a file; a folder replaces only an empty one."""
        path.rename(target)

    def exchange(self, path: Path, target: Path) -> None:
        """Exchange the names of two folders atomically. Raises FileNotFoundError if one does not exist, and another OSError if
        the system or the file system does not support it.
        """
        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if call is None:
            raise OSError("this system has no renameat2")
        if call(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path), None, str(target))

    def link(self, path: Path, target: Path) -> None:
        """Give a file a second name (hard link). Raises OSError if the file system does not support it."""
        os.link(path, target)

    def create(self, path: Path, target: Path) -> None:
        """Like `rename`, for a file. Raises FileExistsError if `target` exists."""
        os.link(path, target)
        path.unlink()

    def remove(self, folder: Path) -> None:
        """Remove a folder and its content. Does nothing if it does not exist."""
        shutil.rmtree(folder, ignore_errors=True)
