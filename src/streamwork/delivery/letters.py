"""Dead letters: events that nobody could do, kept for a person to look at and to replay.

    outputs/COMPONENT/000000000042-FENCE-ATTEMPT-INSTANCE.letters.parquet   staged by an instance, named by its manifest
    dead-letters/COMPONENT/000000000042.parquet                             those of checkpoint 42, when it is committed

The second is written before the checkpoint is completed. A crash in between finds the same letters again and writes the same
file again, under the same name.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.delivery.parquet import from_bytes, to_bytes
from streamwork.errors import Refused
from streamwork.state import FileRef
from streamwork.world import EPOCH_DIGITS, Disk, number_of

T = TypeVar("T")
FOLDER = "dead-letters"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("component", pa.string(), nullable=False),
        pa.field("instance", pa.int32(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("to", pa.string(), nullable=False),
        pa.field("event", pa.string(), nullable=False),
    ]
)


class Letter(msgspec.Struct, frozen=True):
    """One dead letter."""

    id: str
    component: str  # that could not do it
    instance: int
    epoch: int
    error: str
    attempts: int
    to: str  # the component that a replay gives it to; empty if it is no event, so that it cannot be replayed
    event: str  # as JSON; or, if it is no event, the text that it was


def letter_id(component: str, epoch: int, by: int | str, number: int) -> str:
    """`by` tells apart who numbers the letters of one component and epoch: its instances, and others."""
    return f"{component}/{epoch}/{by}-{number}"


def _is_letters(name: str) -> bool:
    return name.endswith(".parquet") and number_of(name[:EPOCH_DIGITS], EPOCH_DIGITS) is not None


class DeadLetters:
    """The dead letters of a job."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """`folder` is that of the job."""
        self._disk = disk
        self._folder = folder

    @staticmethod
    def path(component: str, epoch: int) -> str:
        """Where those of one checkpoint are, below the job's folder."""
        return f"{FOLDER}/{component}/{epoch:012d}.parquet"

    def stage(self, path: str, letters: Sequence[Letter]) -> FileRef:
        """Write letters that count when a manifest names them."""
        data = _bytes(letters)
        self._disk.make_folder((self._folder / path).parent)
        self._disk.create(self._folder / path, data)
        return FileRef(path, hashlib.sha256(data).hexdigest(), len(letters), len(data))

    def read_staged(self, ref: FileRef) -> list[Letter]:
        path = self._folder / ref.path
        try:
            data = self._disk.read(path)
        except FileNotFoundError:
            data = b""
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise Refused(
                "SW-OUTPUT-DAMAGED",
                f"the dead letters {path} are not what their checkpoint recorded",
                "bring the file back from a copy; nothing was committed",
            )
        return _letters(data)

    def keep(self, component: str, epoch: int, letters: Sequence[Letter]) -> None:
        """They count from here on. Those of one component and epoch are given all at once; giving them again changes nothing."""
        path = self._folder / self.path(component, epoch)
        self._disk.make_folder(path.parent)
        self._disk.replace(path, _bytes(letters))

    def all(self, component: str | None = None) -> list[Letter]:
        """Every letter, or those of one component; oldest checkpoint first."""
        wanted = sorted(self._paths(component), key=lambda path: (path.name, str(path)))
        return [letter for path in wanted for letter in self._read(path, _letters)]

    def sizes(self) -> dict[str, int]:
        """Component -> how many letters it has; of each file only the end is looked at."""
        found: Counter[str] = Counter()
        for path in self._paths():
            found[path.parent.name] += self._read(path, _size)
        return dict(sorted(found.items()))

    def _paths(self, component: str | None = None) -> Iterator[Path]:
        top = self._folder / FOLDER
        for name in self._disk.names(top):
            if component in (None, name):
                yield from (top / name / file for file in self._disk.names(top / name) if _is_letters(file))

    def _read(self, path: Path, read: Callable[[bytes], T]) -> T:
        try:
            return read(self._disk.read(path))
        except (pa.ArrowException, OSError, KeyError, msgspec.ValidationError) as error:
            raise Refused(
                "SW-LETTERS-DAMAGED", f"{path} cannot be read: {error}", "bring the file back from a copy, or remove it"
            ) from None


def _bytes(letters: Iterable[Letter]) -> bytes:
    return to_bytes(pa.Table.from_pylist([msgspec.to_builtins(letter) for letter in letters], SCHEMA))


def _size(data: bytes) -> int:
    return int(pq.read_metadata(pa.BufferReader(data)).num_rows)


def _letters(data: bytes) -> list[Letter]:
    return [msgspec.convert(row, Letter) for row in from_bytes(data, SCHEMA.names).to_pylist()]
