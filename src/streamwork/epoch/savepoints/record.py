"""The files of a savepoint that describe it: `begun.json` and `savepoint.json`.

ROOT/JOB/savepoints/NAME/begun.json       who makes it, when and why: the first file, created exclusively
ROOT/JOB/savepoints/NAME/savepoint.json   what it holds, with the hash of every file: the last file, created exclusively

A folder with the first file and without the last one is half-made: a writer is at work, or was killed. All paths are relative to
the folder of the savepoint, so that a copy of it is complete.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.components import Position
from streamwork.epoch.sealed import decode_sealed, read_sealed
from streamwork.errors import Refused
from streamwork.job.params import Value
from streamwork.world import Disk, FileKind, FileRef, check_relative, damaged

FOLDER = "savepoints"
BEGUN, DONE = "begun.json", "savepoint.json"
JOB, GRAPH, SOURCES = "job.json", "graph.json", "sources.json"
FORMAT = 1
"""The newest format that this version reads, and the one that it writes."""
SAVEPOINT_FILE = FileKind(
    "SW-SAVEPOINT-DAMAGED", "use another copy of the savepoint, or another savepoint; nothing was started or changed"
)

StateChains = dict[str, dict[str, tuple[FileRef, ...]]]
"""Component -> instance -> the files that its state is read from, in order."""


class Begun(msgspec.Struct, frozen=True):
    """A savepoint that was begun: what `list` shows of one that was never finished."""

    name: str
    created: float  # seconds since 1970
    by: str  # USER@MACHINE
    note: str = ""
    consumer: str = ""  # what logs know it by, so that retention keeps the events behind it
    seal: str = ""


class Expected(msgspec.Struct, frozen=True):
    """Where the ledger of a sink was."""

    position: Position
    manifest_sha256: str


class SavepointRecord(msgspec.Struct, frozen=True):
    """What a savepoint holds.

    The manifest lies byte for byte in `checkpoints/`, so that its hash is the one that ledgers name. `state` has the files to
    restore from instead of those that the manifest names: mostly one snapshot for each instance, made of its chain.
    """

    format: int
    name: str
    created: float
    by: str
    note: str
    written_by: str  # version of Streamwork
    job: str
    uid: str
    groups: int
    epoch: int
    fence: int  # of the driver whose checkpoint it is
    manifest_sha256: str
    semantics: str
    tracking: str
    positions: Position
    parallelism: dict[str, int]  # of every component
    ledgers: dict[str, Expected]  # of every sink that has one
    state: StateChains
    waiting: tuple[FileRef, ...]  # events that wait for another attempt
    letters: dict[str, dict[str, FileRef]]  # component -> by whom -> dead letters of this checkpoint
    inbox: tuple[
        FileRef, ...
    ]  # files of the inbox: all that are numbered, and what was taken of sources and not accounted for
    others: tuple[FileRef, ...]  # job.json, the manifest, graph.json, sources.json
    consumer: str = ""
    beyond: Position = Position()  # under at-most-once: how far input may have been processed beyond the checkpoint
    params: dict[str, Value] | msgspec.UnsetType = msgspec.UNSET
    origin: str | msgspec.UnsetType = msgspec.UNSET  # of one that was not taken of a running job: how it was made
    seal: str = ""

    def __post_init__(self) -> None:
        for name in (*self.state, *(instance for instances in self.state.values() for instance in instances)):
            check_relative(name)
            if "/" in name:
                raise ValueError(f"{name!r} is no name of a component or instance")

    @property
    def files(self) -> dict[str, FileRef]:
        """Every file that it holds, by path; without `begun.json` and `savepoint.json`."""
        named = [ref for instances in self.state.values() for chain in instances.values() for ref in chain]
        named += [ref for letters in self.letters.values() for ref in letters.values()]
        named += [*self.waiting, *self.inbox, *self.others]
        return {ref.path: ref for ref in named}

    @property
    def bytes(self) -> int:
        return sum(ref.bytes for ref in self.files.values())

    @property
    def rows(self) -> int:
        """Rows of state: keys, and the records of instances. A chain of several files may hold a key more than once."""
        return sum(chain[-1].rows for instances in self.state.values() for chain in instances.values() if chain)


class _Head(msgspec.Struct):
    format: int


def decode_record(path: Path, data: bytes) -> SavepointRecord:
    """The record in `data`. Refuses a newer format, and a file that was changed."""
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(SAVEPOINT_FILE, path, f"cannot be read ({error})") from None
    if head.format > FORMAT:
        raise Refused(
            "SW-SAVEPOINT-FORMAT",
            f"{path} has format {head.format}; this version of Streamwork reads formats up to {FORMAT}",
            "use the version of Streamwork that wrote it, or a newer one; nothing was started or changed",
        )
    return decode_sealed(path, data, SavepointRecord, SAVEPOINT_FILE)


def read_begun(disk: Disk, folder: Path) -> Begun | None:
    """Who began the savepoint in a folder; None if that is not known."""
    try:
        return read_sealed(disk, folder / BEGUN, Begun, SAVEPOINT_FILE)
    except Refused:
        return None


def manifest_path(epoch: int) -> str:
    return f"checkpoints/{epoch:012d}.json"
