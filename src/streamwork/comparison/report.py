"""What a comparison found, and the files that hold it.

FOLDER/comparison.json         the `Comparison`, with examples
FOLDER/differences.parquet     every row that differs: one row per key, its values as JSON
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.components import Position
from streamwork.components.position import plain
from streamwork.errors import Refused
from streamwork.statefiles.diff import ComponentDiff, RowChange

JSON_FILE, PARQUET_FILE = "comparison.json", "differences.parquet"
ROWS = 10_000
SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),  # output, state
        pa.field("component", pa.string()),
        pa.field("change", pa.string()),  # changed, gone (in A alone), added (in B alone)
        pa.field("key", pa.string()),
        pa.field("fields", pa.list_(pa.string())),
        pa.field("a", pa.string()),
        pa.field("b", pa.string()),
        pa.field("deterministic", pa.bool_()),  # false: A itself gave this key another value the second time
    ]
)


class Side(msgspec.Struct, frozen=True):
    """One of the two versions, and what running it took."""

    label: str
    file: str
    params: dict[str, Any]
    fingerprint: str
    events: int
    seconds: float
    events_per_second: int
    counters: dict[str, dict[str, int]]


class Part(msgspec.Struct, frozen=True):
    """The differences of one sink's rows, or of one component's state. `random` counts keys to which A itself gave two values."""

    component: str
    by: str  # key, or multiset: rows without a key are counted
    diff: ComponentDiff  # A is before, B is after
    random: int = 0
    random_examples: tuple[RowChange, ...] = ()
    beyond_random: int = 0  # how many differences there are at other keys
    random_columns: tuple[str, ...] = ()  # that are not compared, of rows without a key

    @property
    def differs(self) -> bool:
        return bool(self.beyond_random or self.diff.schema or self.diff.status.value in ("added", "gone", "rekeyed"))


class Comparison(msgspec.Struct, frozen=True):
    job: str
    root: str
    origin: str
    same: bool  # apart from keys that are not deterministic
    deterministic: bool  # A gave the same twice
    events: int
    ended: bool  # the input ended before the number of events
    epochs: int
    start: Position
    end: Position
    a: Side
    b: Side
    outputs: tuple[Part, ...]
    states: tuple[Part, ...]
    remarks: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True):
    """A row of ``differences.parquet``."""

    kind: str
    component: str
    change: RowChange
    deterministic: bool


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier comparison."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    if names - {JSON_FILE, PARQUET_FILE} or not folder.is_dir():
        raise Refused(
            "SW-COMPARE-FOLDER",
            f"{folder} is there already, and is no folder of an earlier comparison",
            "name another one: --out FOLDER; nothing was changed",
        )


class Writer:
    """Writes both files; they appear complete."""

    def __init__(self, folder: Path) -> None:
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.files = (str(folder / JSON_FILE), str(folder / PARQUET_FILE))
        self._folder = folder

    def write_differences(self, differences: Iterable[Difference]) -> None:
        half = self._folder / f".{PARQUET_FILE}"
        with pq.ParquetWriter(half, SCHEMA, compression="zstd") as writer:
            for piece in _pieces(differences):
                writer.write_batch(pa.RecordBatch.from_pylist(piece, SCHEMA))
        half.replace(self._folder / PARQUET_FILE)

    def write_report(self, comparison: Comparison) -> Comparison:
        """With the names of both files, which is returned."""
        comparison = msgspec.structs.replace(comparison, files=self.files)
        half = self._folder / f".{JSON_FILE}"
        half.write_bytes(msgspec.json.format(msgspec.json.encode(comparison, enc_hook=plain), indent=2) + b"\n")
        half.replace(self._folder / JSON_FILE)
        return comparison


def _pieces(differences: Iterable[Difference]) -> Iterator[list[dict[str, Any]]]:
    piece: list[dict[str, Any]] = []
    for one in differences:
        change = one.change
        piece.append(
            {
                "kind": one.kind,
                "component": one.component,
                "change": change.change.value,
                "key": _json(change.key),
                "fields": list(change.fields),
                "a": _json(change.before),
                "b": _json(change.after),
                "deterministic": one.deterministic,
            }
        )
        if len(piece) >= ROWS:
            yield piece
            piece = []
    if piece:
        yield piece


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
