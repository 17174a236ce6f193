"""One file of a partition, and the batches that a reader has found in it so far."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa

from streamwork.errors import Refused
from streamwork.log.entry import Entry
from streamwork.log.frame import MAX_HEADER, PREFIX, BadFrame, Frame, check_unfinished, find_frame
from streamwork.log.index import read_index, write_index
from streamwork.log.schemas import Version
from streamwork.world import Disk

SUFFIX = ".arrow"
_WINDOW = 1 << 20
_HEADERS = 1 << 14


class KnownSchemas(Protocol):
    """The schemas that segments may begin with."""

    versions: list[Version]

    def refresh(self) -> bool:
        """Read the schemas that were added since. True if there are any."""


class OneSchema:
    """The schema of segments that all have the same one."""

    def __init__(self, schema: pa.Schema) -> None:
        self.versions = [Version.of(schema)]

    def refresh(self) -> bool:
        return False


class Format(msgspec.Struct, frozen=True):
    """Properties of all segments of a partition. `verify=False` exists for the test that proves the CRC necessary."""

    schemas: KnownSchemas
    verify: bool = True


def segment_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}{SUFFIX}"


class Segment:
    """Scans a segment as it grows. An incomplete batch at the end of the file is left for the next refresh."""

    def __init__(self, disk: Disk, folder: Path, base: int, shape: Format) -> None:
        self.base = base
        self.path = segment_path(folder, base)
        self.entries: list[Entry] = []
        self.bad: BadFrame | None = None  # the damage at `scanned`
        self.scanned = 0  # bytes scanned: the end of the last complete batch
        self.indexed = 0  # bytes that the index covers
        self.version = shape.schemas.versions[-1]  # its schema, valid once its beginning is read
        self._start = len(self.version.prologue)  # position of the first batch
        self._disk = disk
        self._shape = shape
        self._recent = (0, pa.py_buffer(b""))  # the bytes that `refresh` read last, for readers that follow the end
        self._mapped = pa.py_buffer(b"")

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.base

    def refresh(self) -> bool:
        """Scan the batches that were appended since. True if there are any. Raises FileNotFoundError if the file was removed."""
        size = self._disk.size(self.path)
        if size <= self.scanned or self.bad is not None:
            return False
        before = self.scanned
        if not self.entries and not self._begin(size):  # until the segment has a batch, a writer may replace its schema
            return False
        try:
            while self.scanned < size and self._walk(size):
                pass
        except BadFrame as bad:
            self.bad = bad
        start, window = self._recent
        if self.scanned < start + window.size:  # the rest may be truncated and rewritten
            self._recent = (start, window.slice(0, max(self.scanned - start, 0)))
        return self.scanned > before

    def _begin(self, size: int) -> bool:
        """Read the schema and the index. False if the schema is incomplete."""
        try:
            start = self._schema_end(size)
        except BadFrame as bad:
            self.bad = bad
            return False
        if start is None:
            return False
        self._start = start
        self.entries = read_index(self._disk, self.path, self.base, start, size) or []
        self.scanned = self.indexed = self.entries[-1].next_position if self.entries else start
        return True

    def _schema_end(self, size: int) -> int | None:
        schemas = self._shape.schemas
        begins = self._disk.read_at(self.path, 0, max(len(version.prologue) for version in schemas.versions))
        for version in schemas.versions:
            if begins.startswith(version.prologue):
                return self.begins_with(version)
        if any(version.prologue.startswith(begins) for version in schemas.versions):
            return None  # incomplete
        if schemas.refresh():
            return self._schema_end(size)
        if not self._shape.verify:
            return self.begins_with(schemas.versions[-1])
        # Another version of Arrow may have serialized the same schema to other bytes.
        end = PREFIX + int.from_bytes(begins[4:PREFIX], "little")
        try:
            if end <= size and end <= MAX_HEADER:
                found = pa.ipc.read_schema(pa.py_buffer(self._disk.read_at(self.path, 0, end)))
                for version in schemas.versions:
                    if found.equals(version.schema):
                        self.version = version
                        return end
        except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError):
            pass
        raise BadFrame("the schema at the beginning of the segment is damaged")

    def begins_with(self, version: Version) -> int:
        """Set the schema of the segment. Returns the position of the first batch."""
        self.version, self._start = version, len(version.prologue)
        return self._start

    def _walk(self, size: int) -> bool:
        """Read one window of frames. False if the next frame is incomplete."""
        start, want = self.scanned, size - self.scanned
        if want > _WINDOW:
            want = _HEADERS  # a large backlog: read only headers
        window = memoryview(self._disk.read_at(self.path, start, want))
        self._recent = (start, pa.py_buffer(window))
        while True:
            frame = find_frame(window, self.scanned - start, self.scanned, self._shape.verify)
            if frame is None:
                if self.scanned > start:
                    return True  # the rest of its header is after this window, or not written yet
                if len(window) < want:
                    return False  # its writer has just truncated the file
                if want == size - start:
                    check_unfinished(bytes(window))
                    return False
                return self._long_header(size)
            if frame.end > size:
                return False
            self._take(frame)
            if self.scanned >= start + len(window):
                return True

    def _long_header(self, size: int) -> bool:
        window = memoryview(self._disk.read_at(self.path, self.scanned, size - self.scanned))
        frame = find_frame(window, 0, self.scanned, self._shape.verify)
        if frame is None:
            check_unfinished(bytes(window))
        if frame is None or frame.end > size:
            return False
        self._take(frame)
        return True

    def _take(self, frame: Frame) -> None:
        if frame.info.base != self.end:
            raise BadFrame(f"the batch has offset {frame.info.base:,}, but the next offset is {self.end:,}")
        self.note(Entry.of(frame))

    def note(self, entry: Entry) -> None:
        """Add a batch that was found by a scan, or that this process has just written."""
        self.entries.append(entry)
        self.scanned = entry.next_position

    def place(self, offset: int) -> int:
        """The place in `entries` of the batch with `offset`."""
        return bisect_right(self.entries, offset, key=lambda entry: entry.end)

    def frame(self, entry: Entry) -> tuple[Frame, pa.Buffer]:
        """The frame of an entry and its bytes. Raises BadFrame if they do not match the entry."""
        data = self._bytes(entry)
        frame = find_frame(memoryview(data), 0, entry.position, self._shape.verify)
        if frame is None or (self._shape.verify and Entry.of(frame) != entry):
            raise BadFrame("the batch's header is damaged")
        return frame, data

    def _bytes(self, entry: Entry) -> pa.Buffer:
        start, recent = self._recent
        if start <= entry.position and entry.next_position <= start + recent.size:
            return recent.slice(entry.position - start, entry.size)
        if entry.next_position > self._mapped.size:
            self._mapped = self._disk.map(self.path).slice(0, self.scanned)
        if entry.next_position > self._mapped.size:
            raise BadFrame("the segment has become shorter")
        return self._mapped.slice(entry.position, entry.size)

    def rebuild(self) -> None:
        """Discard the index and scan the file."""
        self.entries, self.bad, self._mapped = [], None, pa.py_buffer(b"")
        self.scanned = self.indexed = self._start
        size = self._disk.size(self.path)
        try:
            while self.scanned < size and self._walk(size):
                pass
        except BadFrame as bad:
            self.bad = bad

    def write_index(self) -> None:
        write_index(self._disk, self.path, self.base, self.entries)
        self.indexed = self.scanned

    def damaged(self, bad: BadFrame, offset: int, position: int) -> Refused:
        return Refused(
            "SW-LOG-DAMAGED",
            f"{self.path}, byte {position:,}, offset {offset:,}: {bad}",
            "restore the file from a backup and check the disk, or seek past these events. If the machine has just lost "
            "power, append once: that removes a tail that was never acknowledged",
        )
