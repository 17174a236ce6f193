"""A file of JSON lines as a source: one event per line, read as it grows."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from streamwork.components import Event, OnError, Slice, Start
from streamwork.components.columns import check_entered
from streamwork.components.field_types import Misfit
from streamwork.connectors.line_file import LineFile, line_starts, lines

E = TypeVar("E", bound=Event)
BLOCK = 4 * 1024 * 1024
BAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Misfit)
_FIELD = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"missing required field `(\w+)`")


class JsonLines(LineFile[E], Generic[E]):
    """The lines of a file. The offset is that of a line's first byte.

    A line is read once it ends in a newline. The last line is also read without one if it is complete JSON, or with
    `bounded=True`, which declares the file complete. Empty lines are skipped.
    `on_error` applies to a line that does not fit the event: "fail" stops the job and names file, line and field,
    "drop" skips and counts it, "dead-letter" also keeps it. The default follows the semantics.
    Fields that the event does not have are ignored.
    """

    def __init__(
        self,
        path: str | Path,
        event: type[E],
        on_error: OnError | None = None,
        max_events: int = 200_000,
        start: Start = "stored",
        bounded: bool = False,
    ) -> None:
        super().__init__(path, event, on_error, max_events, start, bounded)

    def block_size(self) -> int:
        return BLOCK

    def records(self, data: bytes | bytearray, limit: int) -> tuple[int, int]:
        return lines(data, limit)

    def last(self, data: bytes | bytearray, limit: int) -> int:
        return len(data) if data and (self.bounded or _is_json(data)) else 0

    def decode(self, data: bytes, at: int) -> Slice:
        decoder = msgspec.json.Decoder(self.event)  # created for each block: a decoder cannot be pickled
        if at == 0 and data.startswith(codecs.BOM_UTF8):
            at = len(codecs.BOM_UTF8)
            data = data[at:]
        try:  # decode all lines at once, which is much faster; decode one by one only to find a bad line
            events = decoder.decode_lines(data)
            check_entered(self.event, events)
        except BAD:
            return self._decode_one_by_one(decoder, data, at)
        # The decoder accepts any white space between events, and newlines inside them; here an event is one line.
        if not _are_lines(data, len(events)):
            return self._decode_one_by_one(decoder, data, at)
        return Slice(events, lambda: line_starts(data, at, len(events)))

    def _decode_one_by_one(self, decoder: msgspec.json.Decoder[E], data: bytes, at: int) -> Slice:
        offsets: list[int] = []
        piece = Slice([], offsets)
        for line in data.split(b"\n"):
            if line.strip():
                try:
                    event = decoder.decode(line)
                    check_entered(self.event, [event])
                    piece.events.append(event)
                    offsets.append(at)
                except BAD as error:
                    if self.on_error in (None, "fail"):
                        raise self.bad_line(line, at, field_at_fault(error), reason(error)) from None
                    piece.leave_out(self.on_error, *self.told(line, at, field_at_fault(error), reason(error)))
            at += len(line) + 1
        return piece


def _are_lines(data: bytes, events: int) -> bool:
    """True if each event is certainly one line: every newline is between two objects, and there are as many as events."""
    ends = data.count(b"}\n{") + data.count(b"}\r\n{")
    return ends == events - 1 == data.rstrip().count(b"\n")


def _is_json(data: bytes | bytearray) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def field_at_fault(error: Exception) -> str:
    """The name of the field, as 'amount', if the decoder's message contains it."""
    if isinstance(error, Misfit):
        return error.path
    found = _FIELD.search(str(error)) or _MISSING.search(str(error))
    return found[1] if found else ""


def reason(error: Exception) -> str:
    return _FIELD.sub("", str(error)).replace("`", "").rstrip(".")
