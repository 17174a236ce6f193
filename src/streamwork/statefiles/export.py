"""Writes the state of a component into a file: Parquet, CSV or JSON lines, by the file's name.

The columns are those of key and record. Of components by key without a sub-key, `__timers` follows, so that `state edit` and
`state import` can take the file as it is. The file is complete when it appears.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from streamwork.components.parquet_file import to_bytes
from streamwork.errors import WrongUse
from streamwork.statefiles.component_state import ComponentState
from streamwork.statefiles.plain_values import plain_lists, plain_rows, text_of
from streamwork.world import Disk


def columns_of(state: ComponentState) -> list[str]:
    timers = ["__timers"] if state.shape.key and not state.shape.sub_key else []
    return [*state.shape.columns, *(name for name in timers if name in state.table.column_names)]


def export(state: ComponentState, file: Path, disk: Disk) -> pa.Table:
    """Write the file, and return the rows that it holds."""
    form = FORMS.get(file.suffix.lower())
    if form is None:
        raise WrongUse(
            "SW-STATE-FORMAT", f"{file.name} says no format", f"end its name with one of: {', '.join(FORMS)}"
        )
    if not file.parent.is_dir():
        raise WrongUse("SW-STATE-FORMAT", f"there is no folder {file.parent}", "create it, or name another file")
    table = state.table.select(columns_of(state))
    disk.replace(file, form(table))
    return table


def _json_lines(table: pa.Table) -> bytes:
    encode = msgspec.json.Encoder().encode
    return b"".join(encode(row) + b"\n" for row in plain_rows(table))


def _csv(table: pa.Table) -> bytes:
    lines = [",".join(map(_quoted, table.column_names)), *_csv_lines(table)]
    return "".join(f"{line}\n" for line in lines).encode()


def _csv_lines(table: pa.Table) -> Iterator[str]:
    """A null is nothing between two commas, empty text is in quotes."""
    for values in plain_lists(table):
        yield ",".join("" if value is None else _cell(value) for value in values)


def _cell(value: object) -> str:
    if isinstance(value, bool | int | float):
        return text_of(value)
    return _quoted(text_of(value))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


FORMS: dict[str, Callable[[pa.Table], bytes]] = {".parquet": to_bytes, ".csv": _csv, ".jsonl": _json_lines}
