"""Folders and files as ParquetSink needs them: few operations, each whole, for tests to break between any two."""

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
    """A file that was written is durable; a name is durable after `sync` of its folder."""

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def make(self, folder: Path) -> None:
        """Raises FileExistsError, or FileNotFoundError if its parent is gone: a parent is never made along."""
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
        """An empty file with a name that readers do not see: to be written, and renamed. Gone when the block ends."""
        with temporary(folder) as (path, _):
            yield path

    def remove_abandoned(self, folder: Path) -> None:
        """Remove the temporary files of processes that died."""
        remove_abandoned(folder, below=False)

    def sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, target: Path) -> None:
        """Raises FileNotFoundError if `path` is gone. A file replaces a file; a folder does not replace one that has anything."""
        path.rename(target)

    def exchange(self, path: Path, target: Path) -> None:
        """Two folders take each other's name, in one step. Raises FileNotFoundError if one is gone, and another OSError where
        the system or the file system cannot do it.
        """
        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if call is None:
            raise OSError("there is no renameat2 here")
        if call(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path), None, str(target))

    def link(self, path: Path, target: Path) -> None:
        """Give a file a second name. Raises OSError where the file system cannot do it."""
        os.link(path, target)

    def create(self, path: Path, target: Path) -> None:
        """As `rename`, for a file; raises FileExistsError where something is."""
        os.link(path, target)
        path.unlink()

    def remove(self, folder: Path) -> None:
        """A folder and all in it; fine if it is gone."""
        shutil.rmtree(folder, ignore_errors=True)
