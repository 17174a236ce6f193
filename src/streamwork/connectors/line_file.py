"""The base of sources that read one text file: offsets in bytes, a file that grows, errors that name the line."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from streamwork.components import Event, Located, OffsetSource, OnError, Slice, Start
from streamwork.components.schema import fields_of
from streamwork.components.source import check_on_error, worth_extending
from streamwork.errors import JobFailed, Refused
from streamwork.wording import plural

E = TypeVar("E", bound=Event)
BLOCK = 4 * 1024 * 1024
HEAD = 64 * 1024  # bytes that a file is recognised by
ALL = 2**63  # more records than a file has


class _Unfinished(NamedTuple):
    """A record without an end: its start, the bytes scanned so far, and whether they contain a newline."""

    at: int
    scanned: int
    ends: bool
    settled: bool = False  # it was scanned completely after the file had stopped growing


class LineFile(Located, OffsetSource[E], Generic[E]):
    """The records of a text file that may grow. The offset is that of a record's first byte.

    A subclass defines where records end (`records`, `last`), how they are decoded (`decode`) and the size of a read.
    Planner and reader use the same `records`, so a slice always ends between two records.
    """

    unit = "bytes"

    def __init__(
        self,
        path: str | Path,
        event: type[E],
        on_error: OnError | None,
        max_events: int,
        start: Start,
        bounded: bool,
    ) -> None:
        fields_of(event)
        self.event = event
        self.max_events = max_events
        self.start = start
        self.bounded = bounded
        self.path = Path(path)
        self.on_error = check_on_error(on_error)
        self._inode: tuple[int, int] | None = None  # of the recognised file
        self._unfinished: _Unfinished | None = None  # the last record, if it is incomplete

    @abstractmethod
    def records(self, data: bytes | bytearray, limit: int) -> tuple[int, int]:
        """The number of complete records at the beginning of `data`, at most `limit`, and their bytes."""

    @abstractmethod
    def last(self, data: bytes | bytearray, limit: int) -> int:
        """The number of bytes after the last complete record that are a record because the file ends there."""

    @abstractmethod
    def decode(self, data: bytes, at: int) -> Slice:
        """The events of complete records that begin at offset `at`."""

    def block_size(self) -> int:
        return BLOCK

    def begin(self) -> int | None:
        """The offset of the first record, after a header for instance; None if it is not known yet."""
        return 0

    def partitions(self) -> list[str]:
        return ["0"]

    def mark(self, partition: str, end: int) -> str | None:
        """A hash of the first bytes of the file, which never change: of those that were read, up to `HEAD`."""
        return self._mark(min(end, HEAD))

    def extended(self, partition: str, mark: str, end: int) -> str:
        """A mark over more bytes. The first mark may cover one line, with which other files begin as well. One read verifies
        the bytes of `mark` and adds those that follow.
        """
        size, more = int(mark.partition(":")[0]), min(end, HEAD)
        if not worth_extending(size, more, HEAD):
            return mark
        with self.path.open("rb") as file:
            first = file.read(more)
        return _mark_of(first) if _mark_of(first[:size]) == mark else mark

    def recognises(self, partition: str, mark: str) -> bool:
        """Compare the first bytes of the file. Within one driver also its inode, which changes when the file is replaced."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return True  # which is an error of its own
        inode = (found.st_dev, found.st_ino)
        if self._inode is not None and self._inode != inode:
            return False
        same = self._mark(int(mark.partition(":")[0])) == mark if partition else self._first_line() in (None, mark)
        if same:
            self._inode = inode
        return same

    def _mark(self, size: int) -> str:
        with self.path.open("rb") as file:
            return _mark_of(file.read(size))

    def _first_line(self) -> str | None:
        """The first line, by which an older version recognised a file."""
        begin = self.begin()
        if begin is None:
            return None
        with self.path.open("rb") as file:
            file.seek(begin)
            first = file.read(HEAD)
        line, newline, _ = first.partition(b"\n")
        return hashlib.sha256(line).hexdigest() if newline or len(first) == HEAD else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inode": None, "_unfinished": None}

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        return {partition: self._end(start, limit) for partition, start in starts.items()}

    def has_more(self, ends: Mapping[str, int]) -> bool:
        return any(self._end(end, 1) > end for end in ends.values())

    def _end(self, start: int, limit: int) -> int:
        self._check(start)
        begin = self.begin()
        if begin is None:
            return start
        at, left, rest, ends = max(start, begin), limit, bytearray(), False
        if self._is_unfinished(at):
            return start
        with self.path.open("rb") as file:
            file.seek(at)
            while block := file.read(self.block_size()):
                rest += block
                ends = ends or b"\n" in block
                if not ends:  # do not scan the same bytes again
                    continue
                count, length = self.records(rest, left)
                at, left = at + length, left - count
                del rest[:length]
                if not left:
                    return at
                ends = b"\n" in rest
        more = self.last(rest, left)
        settled = self._unfinished is not None and self._unfinished[:2] == (at, at + len(rest))
        self._unfinished = _Unfinished(at, at + len(rest), ends, settled) if rest and not more else None
        at += more
        return at if at > begin else start  # a header alone has no events

    def _is_unfinished(self, at: int) -> bool:
        """True if the record that begins at `at` is incomplete. It may be very long and grow slowly: only its new bytes are
        scanned. It is scanned completely only when the file has not grown since the last scan, because then it may be complete.
        """
        known = self._unfinished
        if known is None or known.at != at or known.ends or known.scanned - at <= self.block_size():
            return False
        if known.scanned == self.path.stat().st_size:
            return known.settled
        scanned = known.scanned
        with self.path.open("rb") as file:
            file.seek(scanned)
            while block := file.read(self.block_size()):
                if b"\n" in block:
                    return False
                scanned += len(block)
        self._unfinished = _Unfinished(at, scanned, ends=False)
        return True

    def known_ends(self, starts: Mapping[str, int]) -> Mapping[str, int]:
        """The size of the file, unless only the beginning of a record follows the start."""
        return {
            partition: start
            if self._end(start, 1) == start
            else self.path.stat().st_size  # `_end` refuses a missing file
            for partition, start in starts.items()
        }

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        self._check(end)
        begin = self.begin()
        if begin is None:
            raise self._shrunk(0, end)
        at, rest, ends = max(start, begin), bytearray(), False
        with self.path.open("rb") as file:
            file.seek(at)
            while at + len(rest) < end:
                block = file.read(min(self.block_size(), end - at - len(rest)))
                if not block:
                    raise self._shrunk(at + len(rest), end)
                rest += block
                ends = ends or b"\n" in block
                whole = at + len(rest) == end
                cut = len(rest) if whole else self.records(rest, ALL)[1] if ends else 0
                if cut:
                    yield self.decode(bytes(rest[:cut]), at)
                    at += cut
                    del rest[:cut]
                    ends = b"\n" in rest

    def bad_line(self, line: bytes, at: int, field: str, reason: str) -> JobFailed:
        """The error for a record at offset `at`. `field` is empty if no single field is at fault."""
        shown, why = self.told(line, at, field, reason)
        return JobFailed(
            "SW-SOURCE-BAD-EVENT",
            f"{why}. The line: {shown[:200]}",
            'correct the line and start again, or set such lines aside with on_error="dead-letter"',
            retryable=False,
            about_one_event=True,
        )

    def told(self, line: bytes, at: int, field: str, reason: str) -> tuple[str, str]:
        """The record as text, and the fault. The line number is computed only for records that stop the job."""
        named = f", field {field!r}" if field else ""
        place = f"line {self.line_number(at)}" if self.on_error in (None, "fail") else f"byte {at}"
        return line.decode(errors="replace").strip(), f"{self.path} {place}{named}: {reason}"

    def line_number(self, at: int) -> int:
        with self.path.open("rb") as file:
            number = 1
            while at > 0 and (block := file.read(min(self.block_size(), at))):
                number += block.count(b"\n")
                at -= len(block)
        return number

    def _check(self, offset: int) -> None:
        if not self.path.is_file():
            raise missing(self.path)
        size = self.path.stat().st_size
        if size < offset:
            raise self._shrunk(size, offset)

    def _shrunk(self, size: int, offset: int) -> Refused:
        return Refused(
            "SW-SOURCE-SHRUNK",
            f"{self.path} has {plural(size, 'byte')}, but the job has already read {offset:,}",
            "restore the file: a source file may only grow. To read a new file from its start, use another --root",
        )


def missing(path: Path) -> JobFailed:
    return JobFailed(
        "SW-SOURCE-MISSING",
        f"{path} does not exist",
        "create the file, or correct the path in the job",
        about_setup=True,
    )


def _mark_of(first: bytes) -> str:
    return f"{len(first)}:{hashlib.sha256(first).hexdigest()}"


def line_starts(data: bytes, at: int, count: int) -> np.ndarray[Any, Any]:
    """The offsets of the first `count` lines of `data`, which begins at offset `at`."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return at + np.concatenate(([0], ends + 1))[:count]


def lines(data: bytes | bytearray, limit: int) -> tuple[int, int]:
    """`records` of a format in which each line is a record."""
    found = data.count(b"\n")
    if found <= limit:
        return found, data.rfind(b"\n") + 1
    at = 0
    for _ in range(limit):
        at = data.index(b"\n", at) + 1
    return limit, at
