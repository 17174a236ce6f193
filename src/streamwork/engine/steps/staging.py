"""Staged outputs: what a sink will be given, written by the instance that made it.

outputs/SINK/000000000042-FENCE-ATTEMPT-INSTANCE.arrow
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import Columns
from streamwork.components.schema import arrow_schema
from streamwork.engine.adaptive_batch import GLANCE
from streamwork.flow.blame import Blame
from streamwork.world import Disk, DiskFile, FileKind, FileRef

PIECE = 8_192  # rows
STAGED_OUTPUT = FileKind(
    "SW-OUTPUT-DAMAGED", "restore the file from a backup; nothing was committed from it", noun="the staged output"
)


class Staging:
    """Writes the outputs of one attempt for one sink, as an Arrow stream. No file if there are none."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        path: str,
        event: type[Event],
        blame: Blame,
        preview: Callable[[pa.RecordBatch], None] | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`blame` is for events that do not fit; `preview` is shown each piece as it is written, soon after it was made."""
        self._disk = disk
        self._folder = folder
        self._path = path
        self._event = event
        self._blame = blame
        self._preview = preview
        self._clock = clock
        self._shown = clock()
        self._file: _HashedFile | None = None
        self._rows = 0
        self._waiting: list[list[Any] | Columns] = []
        self._count = 0

    def add(self, events: list[Any] | Columns) -> None:
        self._waiting.append(events)
        self._count += len(events)
        if self._count >= PIECE or (self._preview is not None and self._clock() - self._shown >= GLANCE):
            self._write()

    def _write(self) -> None:
        """Many small batches cost more than a few large ones, to write and to read."""
        self._append(self._taken())

    def _taken(self) -> Sequence[Columns]:
        """What waits, as columns; it no longer waits."""
        waiting, self._waiting, self._count = self._waiting, [], 0
        return self._blame.columns(self._event, waiting) if waiting else ()

    def _append(self, pieces: Sequence[Columns]) -> None:
        if not pieces:
            return
        if self._file is None:
            target = self._folder / self._path
            self._disk.make_folder(target.parent)
            self._file = _HashedFile(self._disk.open_append(target))
            self._writer = pa.ipc.new_stream(self._file, arrow_schema(self._event))
        for piece in pieces:
            self._writer.write_batch(piece.batch)
            if self._preview is not None:
                self._preview(piece.batch)
            self._rows += len(piece)
        self._shown = self._clock()

    def finish(self) -> FileRef | None:
        """Make the outputs durable."""
        return self.seal()()

    def seal(self) -> Callable[[], FileRef | None]:
        """The outputs are complete. The result makes them durable; it may be called later, from another thread."""
        pieces = self._taken()
        if self._preview is not None:  # it is shown in the thread of the sink
            self._append(pieces)
            pieces = ()

        def write() -> FileRef | None:
            self._append(pieces)
            if self._file is None:
                return None
            self._writer.close()
            return FileRef(self._path, self._file.finish(), self._rows, self._file.tell())

        return write

    def discard(self) -> None:
        """Close a failed attempt's file. Clean-up removes it."""
        if self._file is not None:
            self._file.close()


def read_staged(disk: Disk, folder: Path, ref: FileRef) -> Iterator[pa.RecordBatch]:
    """Staged outputs, checked against their hash before the first row is handed out."""
    with pa.ipc.open_stream(ref.map(disk, folder, STAGED_OUTPUT)) as stream:
        yield from stream


class _HashedFile:
    """The Python file that Arrow writes to: hashes what passes through, and syncs once at the end."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.closed = False

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """Nothing is buffered here."""

    def finish(self) -> str:
        self._file.sync()
        self.close()
        return self._hash.hexdigest()

    def close(self) -> None:
        self._file.close()
        self.closed = True
