"""Dead letters: events that failed permanently, kept for a user to inspect and replay.

    outputs/COMPONENT/000000000042-FENCE-ATTEMPT-INSTANCE.letters.parquet   staged by an instance, named by its manifest
    outputs/SINK/000000000042-FENCE-refused.json, .copy.json                rows that a sink refuses, recorded before its commit
    dead-letters/COMPONENT/000000000042.parquet                             published: the letters that manifest 42 names
    dead-letters/SINK/000000000042.refused.parquet                          published: the rows that the sink refused

Only published letters count: they can be listed and replayed. `epoch.effects` says when they are published. Publishing again
writes the same content under the same name.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.components.parquet_file import from_bytes, to_bytes
from streamwork.errors import Refused
from streamwork.world import Disk, FileKind, FileRef, damaged, read_whole

T = TypeVar("T")
FOLDER = "dead-letters"
QUARANTINE = "quarantine"
_REFUSED = re.compile(r"(\d{12})-(\d+)-refused(\.copy)?\.json", re.ASCII)
_PUBLISHED = re.compile(r"(\d{12})(\.refused)?\.parquet", re.ASCII)
STAGED_LETTERS = FileKind(
    "SW-OUTPUT-DAMAGED", "restore the file from a backup; nothing was committed", noun="the file of dead letters"
)
PUBLISHED_LETTERS = FileKind("SW-LETTERS-DAMAGED", "restore the file from a backup, or remove it")
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


class _Record(msgspec.Struct, frozen=True):
    """The rows of one epoch that one sink refused."""

    letters: tuple[Letter, ...]
    seal: str


def _seal(letters: Sequence[Letter]) -> str:
    return hashlib.sha256(msgspec.json.encode(list(letters))).hexdigest()


def letter_id(component: str, epoch: int, by: int | str, number: int) -> str:
    """`by` is what numbers the letters of one component and epoch: an instance, or another writer."""
    return f"{component}/{epoch}/{by}-{number}"


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
        return FileRef.write(self._disk, self._folder, path, _bytes(letters), len(letters))

    def read_staged(self, ref: FileRef) -> list[Letter]:
        return _letters(ref.read(self._disk, self._folder, STAGED_LETTERS))

    # ---- rows that a sink refuses ---------------------------------------------------------------------------------

    def stage_refused(self, sink: str, epoch: int, fence: int, letters: Sequence[Letter]) -> None:
        """Record, in two copies, which rows the driver of this fence leaves out when it commits an epoch to a sink; before it
        commits.
        """
        data = msgspec.json.encode(_Record(tuple(letters), _seal(letters)))
        for path in self._copies(sink, epoch, fence):
            self._disk.make_folder(path.parent)
            self._disk.replace(path, data)

    def staged_refused(self, sink: str) -> set[tuple[int, int]]:
        """(epoch, fence) of every such record."""
        found = map(_REFUSED.fullmatch, self._disk.names(self._folder / "outputs" / sink))
        return {(int(match[1]), int(match[2])) for match in found if match is not None}

    def publish_refused(self, sink: str, epoch: int, fence: int) -> None:
        """Publish what was recorded. If nothing was left out, letters that were published before no longer count."""
        letters = self._recorded(self._copies(sink, epoch, fence))
        path = self._folder / FOLDER / sink / f"{epoch:012d}.refused.parquet"
        if letters:
            self._disk.make_folder(path.parent)
            self._disk.replace(path, _bytes(letters))
        else:
            self._disk.remove(path)

    def discard_refused(self, sink: str, epoch: int, fence: int) -> None:
        for path in self._copies(sink, epoch, fence):
            self._disk.discard(path)

    def _copies(self, sink: str, epoch: int, fence: int) -> list[Path]:
        stem = f"{epoch:012d}-{fence}-refused"
        return [self._folder / "outputs" / sink / f"{stem}{suffix}" for suffix in (".json", ".copy.json")]

    def _recorded(self, copies: Sequence[Path]) -> tuple[Letter, ...]:
        """What a record says, by whichever of its copies is whole."""
        for path in copies:
            try:
                record = msgspec.json.decode(self._disk.read(path), type=_Record)
            except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if record.seal == _seal(record.letters):
                return record.letters
        raise Refused(
            "SW-LETTERS-DAMAGED",
            f"{copies[0]} and its copy cannot be read: they hold rows that the sink refused",
            "restore one of them from a backup; or remove both, and the dead letters of that checkpoint and sink are lost",
        )

    # ---- published letters ----------------------------------------------------------------------------------------

    def keep(self, component: str, epoch: int, letters: Sequence[Letter]) -> None:
        """Publish the letters that a manifest names, all of one component at once."""
        path = self._folder / self.path(component, epoch)
        self._disk.make_folder(path.parent)
        self._disk.replace(path, _bytes(letters))

    def all(self, component: str | None = None) -> list[Letter]:
        """Every letter that counts, or those of one component; oldest checkpoint first."""
        wanted = sorted(self._paths(component), key=lambda path: (path.name, str(path)))
        return [letter for path in wanted for letter in self._read(path, _letters)]

    def sizes(self) -> dict[str, int]:
        """Component -> how many letters it has; of each file only the footer is read."""
        found: Counter[str] = Counter()
        for path in self._paths():
            found[path.parent.name] += self._read(path, _size)
        return dict(sorted(found.items()))

    def published(self, component: str, epoch: int) -> bool:
        """True if the letters that the manifest of an epoch names are published."""
        return self._disk.exists(self._folder / self.path(component, epoch))

    def void(self, newest: int, unused: Collection[int]) -> list[str]:
        """The paths, below the job's folder, of published letters that do not count if a start builds on checkpoint `newest`:
        those that manifests beyond it name, whether these are there or not, and manifests that are unused or were set aside
        before.
        """
        found, void = [], self._void().union(unused)
        for component in self._disk.names(self._folder / FOLDER):
            for name in self._disk.names(self._folder / FOLDER / component):
                match = _PUBLISHED.fullmatch(name)
                if match is not None and not match[2] and (int(match[1]) > newest or int(match[1]) in void):
                    found.append(f"{FOLDER}/{component}/{name}")
        return found

    def set_aside(self, component: str) -> dict[int, list[Letter]]:
        """Epoch -> letters that were published, and whose checkpoint a start has set aside since."""
        found: dict[int, list[Letter]] = {}
        for fence in self._disk.names(self._folder / QUARANTINE):
            folder = self._folder / QUARANTINE / fence / FOLDER / component
            for name in self._disk.names(folder):
                if match := _PUBLISHED.fullmatch(name):
                    found.setdefault(int(match[1]), []).extend(self._read(folder / name, _letters))
        return found

    def _paths(self, component: str | None = None) -> Iterator[Path]:
        """A driver that has lost its job may publish the letters of a checkpoint after it was set aside: those do not count."""
        top, void = self._folder / FOLDER, self._void()
        for name in self._disk.names(top):
            if component in (None, name):
                for file in self._disk.names(top / name):
                    match = _PUBLISHED.fullmatch(file)
                    if match is not None and (match[2] or int(match[1]) not in void):
                        yield top / name / file

    def _void(self) -> set[int]:
        """The epochs whose manifests were set aside."""
        quarantine = self._folder / QUARANTINE
        folders = [quarantine / fence / "checkpoints" for fence in self._disk.names(quarantine)]
        stems = [name.partition(".")[0] for folder in folders for name in self._disk.names(folder)]
        return {int(stem) for stem in stems if stem.isascii() and stem.isdigit()}

    def _read(self, path: Path, read: Callable[[bytes], T]) -> T:
        data = read_whole(self._disk.read, path, PUBLISHED_LETTERS)
        try:
            return read(data)
        except (pa.ArrowException, OSError, KeyError, msgspec.ValidationError) as error:
            raise damaged(PUBLISHED_LETTERS, path, f"cannot be read ({error})") from None


def _bytes(letters: Iterable[Letter]) -> bytes:
    return to_bytes(pa.Table.from_pylist([msgspec.to_builtins(letter) for letter in letters], SCHEMA))


def _size(data: bytes) -> int:
    return int(pq.read_metadata(pa.BufferReader(data)).num_rows)


def _letters(data: bytes) -> list[Letter]:
    return [msgspec.convert(row, Letter) for row in from_bytes(data, SCHEMA.names).to_pylist()]
