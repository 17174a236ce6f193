"""The segments of a partition, in order, as a reader finds them.

Readers take no lock and write nothing but missing indexes. They may read while the writer appends, rolls and removes
segments. They stop before an incomplete batch. An offset that was removed or not written yet is an error.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from streamwork.errors import Refused
from streamwork.log.entry import Entry
from streamwork.log.frame import BadFrame, Frame, FrameInfo, decode
from streamwork.log.segment import SUFFIX, Format, Segment, segment_path
from streamwork.world import OFFSET_DIGITS, Disk, number_of

_KEEP_LOADED = 8


class Chunk(msgspec.Struct, frozen=True):
    """Consecutive events of one partition. The first has `offset`; all were appended at `time`."""

    partition: int
    offset: int
    time: int  # microseconds since 1970
    batch: pa.RecordBatch

    @property
    def end(self) -> int:
        return self.offset + int(self.batch.num_rows)


class Partition:
    """The segments as of the last `refresh`."""

    def __init__(self, disk: Disk, folder: Path, number: int, shape: Format) -> None:
        self.folder = folder
        self.number = number
        self._disk = disk
        self._shape = shape
        self._bases: list[int] = []
        self._loaded: dict[int, Segment] = {}
        self._next = (-1, folder)

    def refresh(self) -> None:
        if not self._bases:
            self.relist()
        try:
            while self._bases:
                last = self._load(self._bases[-1])
                last.refresh()
                if last.end == last.base or not self._disk.exists(self._following(last.end)):
                    return
                self._bases.append(last.end)  # the writer has rolled: `last` is finished
        except FileNotFoundError:  # retention has removed the segment
            self.relist()
            if self._bases:
                self._load(self._bases[-1]).refresh()

    def _following(self, end: int) -> Path:
        """The path of the segment that begins at `end`. Cached: a reader that waits for events needs it on each refresh."""
        if self._next[0] != end:
            self._next = (end, segment_path(self.folder, end))
        return self._next[1]

    def relist(self) -> None:
        """List the folder again: segments may have been added and removed."""
        names = (Path(name) for name in self._disk.names(self.folder))
        found = (number_of(name.stem, OFFSET_DIGITS) for name in names if name.suffix == SUFFIX)
        self._bases = sorted(base for base in found if base is not None)
        self._loaded = {base: segment for base, segment in self._loaded.items() if base in set(self._bases)}

    def forget(self) -> None:
        """Discard everything read so far: another process has written here."""
        self._bases, self._loaded = [], {}

    @property
    def start(self) -> int:
        """The lowest retained offset. Lists the folder, because another process may remove segments."""
        self.relist()
        return self._bases[0] if self._bases else 0

    @property
    def end(self) -> int:
        """The offset that the next event will get."""
        return self.active.end if self._bases else 0

    @property
    def active(self) -> Segment:
        """The segment that is being written. The partition must have segments."""
        return self._load(self._bases[-1])

    @property
    def bases(self) -> list[int]:
        return self._bases

    def sizes(self) -> list[int]:
        """Bytes of each segment."""
        sizes = []
        for base in self._bases:
            with contextlib.suppress(FileNotFoundError):
                sizes.append(self._disk.size(segment_path(self.folder, base)))
        return sizes

    def add_segment(self, base: int) -> Segment:
        """Add a segment that the writer is about to create."""
        self._bases.append(base)
        self._loaded[base] = Segment(self._disk, self.folder, base, self._shape)
        return self._loaded[base]

    def check_end(self) -> None:
        """Raise SW-LOG-DAMAGED if damage follows the end, so that readers do not wait for it."""
        if self._bases and (segment := self.active).bad is not None:
            raise segment.damaged(segment.bad, segment.end, segment.scanned)

    def _load(self, base: int) -> Segment:
        if (segment := self._loaded.get(base)) is None:
            segment = Segment(self._disk, self.folder, base, self._shape)
            segment.refresh()
            self._loaded[base] = segment
            for other in list(self._loaded)[:-_KEEP_LOADED]:
                if other != self._bases[-1]:
                    del self._loaded[other]
        return segment

    def segment(self, place: int) -> Segment:
        """The segment at a place in `bases`, scanned to its end. A finished one without an index gets one."""
        segment = self._load(self._bases[place])
        if place == len(self._bases) - 1:
            return segment
        following = self._bases[place + 1]
        if segment.end != following:
            segment.refresh()  # the last batches were appended after it was loaded
        if segment.end != following:
            segment.rebuild()  # a wrong index
        if segment.end != following and segment.bad is None:
            segment.bad = BadFrame(f"the segment ends here, but the next one begins at offset {following}")
        if segment.bad is None and segment.indexed != segment.scanned:
            segment.write_index()
        return segment

    def _find(self, offset: int) -> tuple[Segment, Entry]:
        if not self._bases or offset < self._bases[0]:
            raise self._gone(offset)
        place = bisect_right(self._bases, offset) - 1
        try:
            segment = self.segment(place)
        except FileNotFoundError:
            raise self._gone(offset) from None
        found = segment.place(offset)
        if found < len(segment.entries):
            return segment, segment.entries[found]
        if segment.bad is not None:
            raise segment.damaged(segment.bad, segment.end, segment.scanned)
        raise self.ahead(offset)

    def backwards(self) -> Iterator[Entry]:
        """Every batch, newest first."""
        for place in range(len(self._bases) - 1, -1, -1):
            with contextlib.suppress(FileNotFoundError):
                yield from reversed(self.segment(place).entries)

    def _whole(self, start: int, end: int) -> Iterator[tuple[Segment, Entry, Frame, pa.Buffer]]:
        """The frame and the bytes of each batch, with the header checked against the batch's entry."""
        rebuilt = -1
        while start < end:
            segment, entry = self._find(start)
            try:
                frame, data = segment.frame(entry)
            except FileNotFoundError:
                raise self._gone(start) from None
            except BadFrame as bad:
                if rebuilt == start:
                    raise segment.damaged(bad, entry.base, entry.position) from None
                segment.rebuild()  # the index may be wrong: it is damage only if a scan of the file finds it, too
                rebuilt = start
                continue
            yield segment, entry, frame, data
            start = entry.end

    def chunks(self, start: int, end: int, wanted: Callable[[str], bool]) -> Iterator[Chunk]:
        """The events from `start` up to, but not including, `end`, in batches that are not copied.

        Skips batches whose transaction is not `wanted`. Raises SW-LOG-GONE, SW-LOG-DAMAGED, SW-LOG-AHEAD.
        """
        for segment, entry, frame, data in self._whole(start, end):
            if not wanted(entry.transaction):
                continue
            try:
                batch = decode(frame, data, segment.version.schema, self._shape.verify)
            except BadFrame as bad:
                raise segment.damaged(bad, entry.base, entry.position) from None
            first, last = max(start, entry.base), min(end, entry.end)
            if last - first < entry.rows:
                batch = batch.slice(first - entry.base, last - first)
            yield Chunk(self.number, first, frame.info.time, batch)

    def infos(self, start: int, end: int) -> Iterator[FrameInfo]:
        """The metadata of each batch."""
        for _, _, frame, _ in self._whole(start, end):
            yield frame.info

    def offset_at(self, time: int) -> int:
        """The first offset appended at `time` or later; the end if there is none."""

        def first_append(base: int) -> int:
            entries = self._load(base).entries
            return entries[0].time if entries else time  # the active one, still empty

        place = max(bisect_right(self._bases, time - 1, key=first_append) - 1, 0)
        for later in range(place, len(self._bases)):
            entries = self.segment(later).entries
            found = bisect_right(entries, time - 1, key=lambda entry: entry.time)
            if found < len(entries):
                return entries[found].base
        return self.end

    def _gone(self, offset: int) -> Refused:
        start = self.start
        return Refused(
            "SW-LOG-GONE",
            f"partition {self.number} of {self.folder.parent} begins at offset {start:,}; retention has removed offset {offset:,}",
            "seek to the start to continue without these events. Register a reader as a consumer to keep events for it",
        )

    def ahead(self, offset: int) -> Refused:
        return Refused(
            "SW-LOG-AHEAD",
            f"partition {self.number} of {self.folder.parent} ends at offset {self.end:,}, before offset {offset:,}",
            "start the reader from an offset that the log has. If the log was replaced or the machine lost power, the reader "
            "has read events that no longer exist",
        )
