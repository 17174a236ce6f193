"""A file of JSON lines as a source: one event a line, followed as it grows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from streamwork.components import Event, OffsetSource, OnError, Slice
from streamwork.components.columns import check_entered
from streamwork.components.schema import Misfit, fields_of
from streamwork.errors import JobFailed, Refused, WrongUse

E = TypeVar("E", bound=Event)
BLOCK = 4 * 1024 * 1024
_FIELD = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"missing required field `(\w+)`")


class JsonLines(OffsetSource[E], Generic[E]):
    """The lines of a file. The offset is that of a line's first byte.

    A line counts when it ends in a newline; the last one also without, once it is whole JSON. Empty lines are passed
    over.
    `on_error` says what becomes of a line that does not fit the event: "fail" stops the job and names file, line and field,
    "drop" leaves it out and counts it. Fields that the event does not have are ignored.
    """

    def __init__(self, path: str | Path, event: type[E], on_error: OnError = "fail", max_events: int = 200_000) -> None:
        if on_error not in ("fail", "drop"):
            raise WrongUse("SW-JOB-SETTING", f"on_error={on_error!r} is not known", 'use "fail" or "drop"')
        fields_of(event)
        self.event = event
        self.max_events = max_events
        self.path = Path(path).absolute()
        self._on_error = on_error

    def partitions(self) -> list[str]:
        return ["0"]

    def end(self, partition: str, start: int, max_events: int) -> int:
        self._check(start)
        at, lines = start, 0
        with self.path.open("rb") as file:
            file.seek(start)
            rest = b""
            while block := file.read(BLOCK):
                found = block.count(b"\n")
                if lines + found >= max_events:
                    return at + _after(block, max_events - lines) + len(rest)
                lines += found
                whole, newline, tail = (rest + block).rpartition(b"\n")
                at, rest = at + len(whole) + len(newline), tail
        return at + len(rest) if rest and _is_json(rest) else at

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        self._check(end)
        decoder = msgspec.json.Decoder(self.event)
        with self.path.open("rb") as file:
            file.seek(start)
            at, rest = start, b""
            while at + len(rest) < end:
                rest += file.read(min(BLOCK, end - at - len(rest)))
                cut = len(rest) if at + len(rest) == end else rest.rfind(b"\n") + 1
                if cut:
                    yield self._decode(decoder, rest[:cut], at)
                    at, rest = at + cut, rest[cut:]

    def _decode(self, decoder: msgspec.json.Decoder[E], data: bytes, at: int) -> Slice:
        try:  # all at once is much faster; which line was bad is found out only if one was
            events = decoder.decode_lines(data)
            check_entered(self.event, events)
            return Slice(events)
        except (msgspec.MsgspecError, UnicodeDecodeError, Misfit):
            return self._decode_one_by_one(decoder, data, at)

    def _decode_one_by_one(self, decoder: msgspec.json.Decoder[E], data: bytes, at: int) -> Slice:
        piece = Slice([])
        for line in data.splitlines(keepends=True):
            if line.strip():
                try:
                    event = decoder.decode(line)
                    check_entered(self.event, [event])
                    piece.events.append(event)
                except (msgspec.MsgspecError, UnicodeDecodeError, Misfit) as error:
                    if self._on_error == "fail":
                        raise self._bad_line(line, at, error) from None
                    piece.dropped += 1
            at += len(line)
        return piece

    def _bad_line(self, line: bytes, at: int, error: Exception) -> JobFailed:
        number = self._line_number(at)
        shown = line.decode(errors="replace").strip()
        return JobFailed(
            "SW-SOURCE-BAD-EVENT",
            f"{self.path} line {number}{_field(error)}: {_reason(error)}. The line: {shown[:200]}",
            'correct the line and start again, or leave such lines out with on_error="drop"',
        )

    def _line_number(self, at: int) -> int:
        with self.path.open("rb") as file:
            number = 1
            while at > 0 and (block := file.read(min(BLOCK, at))):
                number += block.count(b"\n")
                at -= len(block)
        return number

    def _check(self, offset: int) -> None:
        if not self.path.is_file():
            raise JobFailed(
                "SW-SOURCE-MISSING", f"{self.path} is not there", "create the file, or correct the path in the job"
            )
        size = self.path.stat().st_size
        if size < offset:
            raise Refused(
                "SW-SOURCE-SHRUNK",
                f"{self.path} has {size} bytes, but the job has already read {offset}",
                "bring the file back: a source may only be added to. To read a new file from its start, use another --root",
            )


def _after(block: bytes, count: int) -> int:
    """Where the line after the `count`-th newline begins."""
    at = 0
    for _ in range(count):
        at = block.index(b"\n", at) + 1
    return at


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _field(error: Exception) -> str:
    """ ", field 'amount'" where the decoder's words tell which."""
    if isinstance(error, Misfit):
        return f", field {error.path!r}"
    found = _FIELD.search(str(error)) or _MISSING.search(str(error))
    return f", field {found[1]!r}" if found and found[1] else ""


def _reason(error: Exception) -> str:
    return _FIELD.sub("", str(error)).replace("`", "").rstrip(".")
