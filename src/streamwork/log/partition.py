"""A partition, as readers know it: its segments in order, and what lies where.

Readers take no lock and write nothing but an index that is missing. They may read while the writer appends, rolls and
removes: they stop before a batch that is not whole, and an offset that is gone or not there yet is an error.
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
    """Some events of one partition, in order: the first has `offset`, and all were appended at `time`."""

    partition: int
    offset: int
    time: int  # microseconds since 1970
    batch: pa.RecordBatch

    @property
    def end(self) -> int:
        return self.offset + int(self.batch.num_rows)


class Partition:
    """Call `refresh` to see what was appended since; the rest answers from what the last refresh found."""

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
        except FileNotFoundError:  # so old that it was retained away
            self.relist()
            if self._bases:
                self._load(self._bases[-1]).refresh()

    def _following(self, end: int) -> Path:
        """Where the writer will go on when it rolls. Asked all the time by whoever waits for events: remembered."""
        if self._next[0] != end:
            self._next = (end, segment_path(self.folder, end))
        return self._next[1]

    def relist(self) -> None:
        """Look at the folder again: segments may have come and gone."""
        names = (Path(name) for name in self._disk.names(self.folder))
        found = (number_of(name.stem, OFFSET_DIGITS) for name in names if name.suffix == SUFFIX)
        self._bases = sorted(base for base in found if base is not None)
        self._loaded = {base: segment for base, segment in self._loaded.items() if base in set(self._bases)}

    def forget(self) -> None:
        """Trust nothing that was read before: somebody else has written here."""
        self._bases, self._loaded = [], {}

    @property
    def start(self) -> int:
        """The lowest offset that is still there. Looks at the folder: another process may be retaining."""
        self.relist()
        return self._bases[0] if self._bases else 0

    @property
    def end(self) -> int:
        """The offset that the next event will get."""
        return self.active.end if self._bases else 0

    @property
    def active(self) -> Segment:
        """The segment that is being written; only where there is one."""
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
        """The writer's own: a segment that it is about to create."""
        self._bases.append(base)
        self._loaded[base] = Segment(self._disk, self.folder, base, self._shape)
        return self._loaded[base]

    def check_end(self) -> None:
        """Raise SW-LOG-DAMAGED if what follows the end is damage, for which no reader should wait."""
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
        """The segment at a place in `bases`, whole; a finished one is indexed if it was not."""
        segment = self._load(self._bases[place])
        if place == len(self._bases) - 1:
            return segment
        following = self._bases[place + 1]
        if segment.end != following:
            segment.refresh()  # the last batches came after we had loaded it
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
        """Each batch's frame and bytes, the header checked against what we knew about it."""
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
                segment.rebuild()  # a wrong index looks like damage: only if the file itself agrees is it damage
                rebuilt = start
                continue
            yield segment, entry, frame, data
            start = entry.end

    def chunks(self, start: int, end: int, wanted: Callable[[str], bool]) -> Iterator[Chunk]:
        """The events from `start` up to, not including, `end`, in batches that are not copied.

        Batches whose transaction is not `wanted` are passed over. Raises SW-LOG-GONE, SW-LOG-DAMAGED, SW-LOG-AHEAD.
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
        """What each batch says about itself."""
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
            f"partition {self.number} of {self.folder.parent} begins at offset {start}; {offset} was retained away",
            "to go on without these events, seek to the start. To keep events for a reader, register it as a consumer",
        )

    def ahead(self, offset: int) -> Refused:
        return Refused(
            "SW-LOG-AHEAD",
            f"partition {self.number} of {self.folder.parent} ends at offset {self.end}; {offset} is not there",
            "if the log was replaced or the machine lost power, the reader has seen events that are gone: start it from "
            "a position that the log has",
        )
