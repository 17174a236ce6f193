"""A CSV file as a source, read as it grows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from streamwork.components import Event, OnError, Slice, Start
from streamwork.components.field_types import Misfit, show
from streamwork.components.schema import maker
from streamwork.connectors.csv_values import readers_of
from streamwork.connectors.line_file import BLOCK, LineFile, lines
from streamwork.errors import JobFailed, WrongUse

E = TypeVar("E", bound=Event)
QUOTED_LIMIT = 1024 * 1024
"""Maximum length of a row in bytes: a quote that is never closed must not consume the file."""
_BOM = b"\xef\xbb\xbf"
csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))  # process-wide; Python's default is 128 KiB


class Csv(LineFile[E], Generic[E]):
    r"""The rows of a CSV file in UTF-8. The offset is that of a row's first byte.

    Columns are matched to fields by name: `header=True` takes the names from the first row, `header=[...]` gives them for a
    file without a header row. Every field needs a column; columns without a field are ignored. Values are parsed strictly:
    `true` and `false`, ISO times with a zone, Decimals within the declared digits, bytes as base64. An empty value is
    null if the field is optional, and otherwise an empty str.

    Quoting follows RFC 4180: a quoted value may hold delimiters, newlines and doubled quotes. A row without an unquoted
    newline within 1 MiB ends at its first newline. A row is read once it ends in a newline. A last row without a newline
    may be incomplete: it is read only with `bounded=True`, which declares the file complete.
    Empty lines are skipped.
    `on_error` applies to a row that does not fit the event: "fail" stops the job and names file, line and
    field, "drop" skips and counts it, "dead-letter" also keeps it. The default follows the semantics.
    """

    def __init__(
        self,
        path: str | Path,
        event: type[E],
        on_error: OnError | None = None,
        delimiter: str = ",",
        header: bool | Sequence[str] = True,
        max_events: int = 200_000,
        start: Start = "stored",
        bounded: bool = False,
    ) -> None:
        super().__init__(path, event, on_error, max_events, start, bounded)
        readers_of(event)
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\n\r\0':
            raise WrongUse("SW-JOB-SETTING", f"delimiter={delimiter!r}", 'use one character, such as "," or "\\t"')
        self._delimiter = delimiter
        self._names = None if header is True else self._given_names(header)
        mark = re.escape(delimiter).encode()
        value = rb'(?:"(?:[^"]++|"")*+"[^%b\n]*+|[^"%b\n][^%b\n]*+|)' % (mark, mark, mark)
        self._row = re.compile(rb"%b(?:%b%b)*+(?:\n|\Z)" % (value, mark, value))

    def block_size(self) -> int:
        return BLOCK

    def begin(self) -> int | None:
        found = self._header()
        return found and found[0]

    def records(self, data: bytes | bytearray, limit: int) -> tuple[int, int]:
        if b'"' not in data:
            return lines(data, limit)
        at, count = 0, 0
        while count < limit and (end := self._row_end(data, at, final=False)) is not None:
            at, count = end, count + 1
        return count, at

    def last(self, data: bytes | bytearray, limit: int) -> int:
        at, count = 0, 0
        while self.bounded and count < limit and (end := self._row_end(data, at, final=True)) is not None:
            at, count = end, count + 1
        return at

    def decode(self, data: bytes, at: int) -> Slice:
        header = self._header()
        assert header is not None, "rows follow the header"
        rows = self._rows(data)
        try:  # decode all rows at once, which is much faster; decode one by one only to find a bad row
            events = self._events(rows, header[1])
            return Slice(events, lambda: at + _starts(rows))
        except (Misfit, csv.Error, UnicodeDecodeError):
            return self._decode_one_by_one(rows, header[1], at)

    def _decode_one_by_one(self, rows: list[bytes], names: Sequence[str], at: int) -> Slice:
        offsets: list[int] = []
        piece = Slice([], offsets)
        for row in rows:
            try:
                events = self._events([row], names)
                piece.events.extend(events)
                offsets.extend(at for _ in events)
            except (Misfit, csv.Error, UnicodeDecodeError) as error:
                field = error.path if isinstance(error, Misfit) else ""
                if self.on_error in (None, "fail"):
                    raise self.bad_line(row, at, field, str(error)) from None
                piece.leave_out(self.on_error, *self.told(row, at, field, str(error)))
            at += len(row)
        return piece

    def _events(self, rows: list[bytes], names: Sequence[str]) -> list[E]:
        """The events of some rows. Raises for a bad row, not necessarily the first."""
        parsed = list(csv.reader((row.decode() for row in rows), delimiter=self._delimiter, strict=True))
        if len(parsed) != len(rows):
            raise csv.Error("a quote is not closed")
        present = [values for values in parsed if values]
        for values in present:
            if len(values) != len(names):
                raise csv.Error(f"expected {len(names)} columns, got {len(values)}")
        columns = []
        for field, read in readers_of(self.event).items():
            place = names.index(field)
            try:
                columns.append([read(values[place]) for values in present])
            except Misfit as misfit:
                raise Misfit(misfit.value, misfit.expected, field) from None
        return list(map(maker(self.event), *columns))

    def _rows(self, data: bytes) -> list[bytes]:
        if b'"' not in data:
            return [line + b"\n" for line in data.split(b"\n")] if data else []
        return list(self._cut(data))

    def _cut(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while (end := self._row_end(data, at, final=True)) is not None:
            yield data[at:end]
            at = end

    def _row_end(self, data: bytes | bytearray, at: int, final: bool) -> int | None:
        """The end of the row at `at`; None if it is not known yet, or if no data is left.

        The result does not depend on whether more data follows, so planner and reader agree. With `final` an
        open row ends with the data.
        """
        if at == len(data):
            return None
        found = self._row.match(data, at, at + QUOTED_LIMIT)
        if found and (data[found.end() - 1] == 0x0A or (final and found.end() == len(data))):
            return found.end()
        newline = data.find(b"\n", at)
        if newline >= 0 and (final or len(data) - at > QUOTED_LIMIT):
            return newline + 1
        return len(data) if final else None

    def _header(self) -> tuple[int, Sequence[str]] | None:
        """The offset of the first row, and the names of the columns; None if the header is incomplete."""
        with self.path.open("rb") as file:
            data = file.read(QUOTED_LIMIT + len(_BOM) + 1)
        begin = len(_BOM) if data.startswith(_BOM) else 0
        if self._names is not None:
            return begin, self._names
        end = self._row_end(data, begin, final=self.bounded)
        if end is None:
            return None
        try:
            (names,) = csv.reader([data[begin:end].decode()], delimiter=self._delimiter, strict=True)
        except (csv.Error, UnicodeDecodeError, ValueError) as error:
            raise self._bad_header(f"cannot be read: {error}") from None
        fault = _fault(names, self.event.__struct_fields__)
        if fault:
            raise self._bad_header(fault)
        return end, names

    def _bad_header(self, fault: str) -> JobFailed:
        return JobFailed(
            "SW-SOURCE-HEADER",
            f"the first row of {self.path} {fault}",
            "correct it; or, if the file has no header row, pass the names with header=[...]; "
            f"or, if its values are not separated by {self._delimiter!r}, pass the separator with delimiter=",
            retryable=False,
        )

    def _given_names(self, header: Any) -> list[str]:
        fields = self.event.__struct_fields__
        names = [] if isinstance(header, bool | str) else list(header)
        fault = _fault(names, fields)
        if fault:
            raise WrongUse(
                "SW-JOB-SETTING", f"header={header!r} {fault}", f"name every column, among them {', '.join(fields)}"
            )
        return names


def _fault(names: Sequence[str], fields: Sequence[str]) -> str:
    """The fault in these names of columns; empty if there is none."""
    for field in fields:
        if names.count(field) != 1:
            times = f"{names.count(field)} columns" if field in names else "no column"
            return (
                f"has {times} {field!r}, only {show(', '.join(names))}" if times[0] == "n" else f"has {times} {field!r}"
            )
    return ""


def _starts(rows: list[bytes]) -> np.ndarray[Any, Any]:
    """The offset of each row that holds an event. Empty lines are skipped."""
    starts = np.cumsum([0, *map(len, rows)])[:-1]
    return starts[[bool(row.strip(b"\r\n")) for row in rows]]
