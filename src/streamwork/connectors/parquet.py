"""Parquet files as a source: one file, or all files of a folder or a pattern, including files that are added later."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.components import Event, Located, OffsetSource, OnError, Slice, Start
from streamwork.components.schema import fields_of
from streamwork.components.source import check_on_error
from streamwork.connectors.checked import checked_slice
from streamwork.connectors.line_file import missing
from streamwork.connectors.parquet_types import misfit_of
from streamwork.errors import JobFailed, Refused
from streamwork.wording import plural

E = TypeVar("E", bound=Event)
PIECE = 8_192
TAIL = 16 * 1024  # number of bytes by which a file is recognised
_MAGIC = frozenset("*?[")


class _Size(NamedTuple):
    """A file's number of rows, and its modification time and size when they were counted."""

    bytes: int
    modified: int
    rows: int


class Parquet(Located, OffsetSource[E], Generic[E]):
    """The rows of Parquet files. Each file is a partition, the offset is the row's number in it.

    `path` is a file, a folder (every ``.parquet`` below it) or a pattern (``data/2026-*/*.parquet``). Complete files may be
    added at any time: write them under a name that begins with ``.`` or ``_``, which is ignored, and rename. Existing
    files must not change; a file that was read and is then missing or shorter is refused. `bounded=True` declares
    that all files exist.

    Columns are matched to fields by name; further columns are not read. A column must have the field's type or convert to it
    without loss (int32 to int, milliseconds to datetime). `on_error` applies to a row with a value that
    does not fit, such as a null in a required field: "fail" names file, row and field, "drop" skips
    and counts the row, "dead-letter" also keeps it. The default follows the semantics.
    """

    unit = "events"

    def __init__(
        self,
        path: str | Path,
        event: type[E],
        on_error: OnError | None = None,
        max_events: int = 200_000,
        start: Start = "stored",
        bounded: bool = False,
    ) -> None:
        fields_of(event)
        self.event = event
        self.max_events = max_events
        self.start = start
        self.bounded = bounded
        self.path = Path(path)
        self.on_error = check_on_error(on_error)
        self._files: dict[str, Path] = {}  # every partition ever found, so that a missing file is an error
        self._looks: dict[str, tuple[int, ...]] = {}  # stat of files when they were recognised
        self._sizes: dict[str, _Size] = {}  # so that an idle job does not open every file repeatedly

    def partitions(self) -> list[str]:
        for base, file in self._found():
            self._files.setdefault(partition_name(file.relative_to(base)), file)
        return sorted(self._files, key=self._files.__getitem__)

    def mark(self, partition: str, end: int) -> str | None:
        """A hash of a file's size and its last bytes, which are the Parquet footer."""
        return _mark(self._file(partition))

    def recognises(self, partition: str, mark: str) -> bool:
        """Compare size and footer. The file is read again only if its stat has changed."""
        if partition not in self._files:
            self.partitions()
        file = self._files.get(partition)
        if file is None or not file.is_file():
            return True  # which is an error of its own
        found = file.stat()
        look = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if self._looks.get(partition) != look:
            if _mark(file) != mark:
                return False
            self._looks[partition] = look
        return True

    def fixed_partitions(self) -> int | None:
        return 1 if self.path.is_file() else None  # files may be added to a folder

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        return {partition: self._end(partition, start, limit) for partition, start in starts.items()}

    def has_more(self, ends: Mapping[str, int]) -> bool:
        return any(end < self._sizes[partition].rows for partition, end in ends.items())

    def _end(self, partition: str, start: int, limit: int) -> int:
        file = self._file(partition)
        if not file.is_file() and not start:
            return start  # it was removed before any row was read
        rows = self._rows(partition, start)
        if rows < start:
            raise Refused(
                "SW-SOURCE-SHRUNK",
                f"{file} has {plural(rows, 'row')}, but the job has already read {start:,}",
                "restore the file: existing files must not change. To read from the start again, use another --root",
            )
        return min(rows, start + limit)

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        file = self._file(partition)
        with self._open(file, start) as parquet:
            total = parquet.metadata.num_rows
            if total < end:
                raise self._gone(file, end, f"has only {plural(total, 'row')}")
            for group, at, rows in _groups(parquet.metadata):
                if at < end and at + rows > start:
                    yield from self._read_group(parquet, file, group, at, start, end)

    def _read_group(
        self, parquet: pq.ParquetFile, file: Path, group: int, at: int, start: int, end: int
    ) -> Iterator[Slice]:
        first = at
        names, rows = list(fields_of(self.event)), PIECE
        try:
            while True:
                try:
                    for batch in parquet.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
                        low, high = max(start - at, 0), min(end - at, batch.num_rows)
                        if low < high:
                            yield self._events(batch.slice(low, high - low), file, at + low)
                            start = at + high
                        at += batch.num_rows
                        if at >= end:
                            return
                    return
                except (pa.ArrowNotImplementedError, pa.ArrowCapacityError):
                    if rows == 1:
                        raise
                    # The rows of a nested column exceed Arrow's limits. Read smaller batches, and skip the rows already read.
                    rows, at = max(1, rows // 8), first
        except (OSError, pa.ArrowException) as error:
            raise _damaged(file, error) from None

    def _events(self, batch: pa.RecordBatch, file: Path, at: int) -> Slice:
        action = 'write a corrected file, or skip such rows with on_error="drop"'
        return checked_slice(self.event, batch, self.on_error, lambda row: f"{file} row {at + row}", action, at)

    def _found(self) -> Iterator[tuple[Path, Path]]:
        """The existing files, each with the folder that its partition name is relative to."""
        if self.path.is_file():
            yield self.path.parent, self.path
            return
        base, pattern = self.path, "**/*.parquet"
        if not self.path.is_dir() and _MAGIC & set(str(self.path)):
            parts = self.path.parts
            fixed = next(i for i, part in enumerate(parts) if _MAGIC & set(part))
            base, pattern = Path(*parts[:fixed]), "/".join(parts[fixed:])
        if base.is_dir():
            for file in base.glob(pattern):
                if file.is_file() and not any(part[0] in "._" for part in file.relative_to(base).parts):
                    yield base, file
        elif not self._files:
            raise missing(base)

    def _file(self, partition: str) -> Path:
        if partition not in self._files:
            self.partitions()
        if partition not in self._files:
            raise self._gone(self.path, 0, f"has no file for partition {partition}")
        return self._files[partition]

    def _rows(self, partition: str, read: int) -> int:
        file = self._files[partition]
        if not file.is_file():
            raise self._gone(file, read, "does not exist")
        found, known = file.stat(), self._sizes.get(partition)
        if known is None or (known.bytes, known.modified) != (found.st_size, found.st_mtime_ns):
            with self._open(file, read) as parquet:
                known = _Size(found.st_size, found.st_mtime_ns, parquet.metadata.num_rows)
            self._sizes[partition] = known
        return known.rows

    def _open(self, file: Path, read: int) -> pq.ParquetFile:
        """The file, if its columns fit the event."""
        if not file.is_file():
            raise self._gone(file, read, "does not exist")
        try:
            parquet = pq.ParquetFile(file, pre_buffer=False)
        except (OSError, pa.ArrowException) as error:
            raise _damaged(file, error) from None
        misfit = misfit_of(parquet.schema_arrow, self.event)
        if misfit:
            parquet.close()
            raise JobFailed(
                "SW-SOURCE-SCHEMA",
                f"{file}: {misfit}",
                f"write the file with columns that fit {self.event.__name__}, or declare the field with the column's type",
                retryable=False,
            )
        return parquet

    def _gone(self, file: Path, read: int, what: str) -> Refused:
        return Refused(
            "SW-SOURCE-GONE",
            f"{file} {what}, but the job has read or planned to read from it (up to row {read:,})",
            "restore the file: files may be added, but not removed. To continue without it, use another --root",
        )


def _mark(file: Path) -> str:
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - TAIL))
        return f"{size}:{hashlib.sha256(opened.read()).hexdigest()}"


def partition_name(file: Path) -> str:
    """The partition name of a file: readable, unique, and derived from its path below the source's folder."""
    path = file.as_posix()
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", path.removesuffix(".parquet"))[-47:]
    return f"{readable}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"


def _groups(metadata: pq.FileMetaData) -> Iterator[tuple[int, int, int]]:
    """Number, first row and number of rows of each row group."""
    at = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        yield group, at, rows
        at += rows


def _damaged(file: Path, error: Exception) -> JobFailed:
    return JobFailed(
        "SW-SOURCE-DAMAGED",
        f"{file} cannot be read as Parquet: {error}",
        "restore the complete file; if it is still being written, write it under a name that begins with _ and rename it",
    )
