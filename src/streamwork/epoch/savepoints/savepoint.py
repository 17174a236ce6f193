"""`Savepoint`: a complete savepoint, opened for reading. It changes nothing.

savepoint = Savepoint.open(disk, root / "card-usage" / "savepoints" / "before-v2")
savepoint.manifest, savepoint.identity         as they were in the job's folder
savepoint.chains                               component -> instance -> files, below savepoint.folder
savepoint.problems()                           every file that is missing or was changed
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.epoch.manifest import Manifest
from streamwork.epoch.recovery.verify import Problem
from streamwork.epoch.savepoints.graph_record import GraphRecord
from streamwork.epoch.savepoints.record import (
    DONE,
    GRAPH,
    JOB,
    SAVEPOINT_FILE,
    SavepointRecord,
    decode_record,
    manifest_path,
    read_begun,
)
from streamwork.epoch.sealed import decode_sealed
from streamwork.epoch.store import Identity
from streamwork.errors import Refused, WrongUse
from streamwork.state import FileChains, StateFiles
from streamwork.world import Disk, damaged, read_whole

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Savepoint:
    """The value of a savepoint's folder, which may lie anywhere."""

    disk: Disk
    folder: Path
    record: SavepointRecord
    identity: Identity  # of the job that it was taken of
    manifest: Manifest
    graph: GraphRecord

    @classmethod
    def open(cls, disk: Disk, folder: Path) -> Savepoint:
        """Read what describes it. Refuses a folder that is none (SW-SAVEPOINT-UNKNOWN), is half-made or half-copied
        (SW-SAVEPOINT-INCOMPLETE), has a newer format (SW-SAVEPOINT-FORMAT) or is damaged (SW-SAVEPOINT-DAMAGED). State files
        are not read: see `check`.
        """
        path = folder / DONE
        if not disk.exists(path):
            raise missing(disk, folder)
        record = decode_record(path, read_whole(disk.read, path, SAVEPOINT_FILE))
        identity = _part(disk, folder, record, JOB, Identity)
        manifest = _part(disk, folder, record, manifest_path(record.epoch), Manifest)
        graph = _part(disk, folder, record, GRAPH, GraphRecord)
        if (identity.uid, manifest.uid, manifest.sha256) != (record.uid, record.uid, record.manifest_sha256):
            raise damaged(SAVEPOINT_FILE, path, "does not describe the manifest and the job beside it")
        return cls(disk, folder, record, identity, manifest, graph)

    @property
    def chains(self) -> FileChains:
        """Component -> instance -> the files to restore it from, with paths below `folder`."""
        return self.record.state

    @cached_property
    def files(self) -> StateFiles:
        """Reads its state files."""
        return StateFiles(self.disk, self.folder)

    def problems(self) -> list[Problem]:
        """Compare every file with its hash."""
        found = []
        for ref in self.record.files.values():
            try:
                ref.map(self.disk, self.folder, SAVEPOINT_FILE)
            except Refused as refused:
                found.append(Problem(ref.path, refused.cause))
        return found

    def check(self) -> None:
        """Refuse a savepoint of which a file is missing or was changed."""
        for problem in self.problems():
            half = "; was it copied completely?" if problem.what.endswith("is missing") else ""
            raise Refused(
                SAVEPOINT_FILE.code, f"savepoint {self.record.name}: {problem.what}{half}", SAVEPOINT_FILE.action
            )


def missing(disk: Disk, folder: Path) -> Refused | WrongUse:
    """The error for a folder without `savepoint.json`."""
    begun = read_begun(disk, folder)
    if begun is None and not disk.names(folder):
        return WrongUse(
            "SW-SAVEPOINT-UNKNOWN",
            f"there is no savepoint in {folder}",
            "`streamwork savepoint list job.py` shows the savepoints of a job; "
            "a savepoint elsewhere is given by the path of its folder",
        )
    by = "" if begun is None else f", which {begun.by} began"
    return Refused(
        "SW-SAVEPOINT-INCOMPLETE",
        f"the savepoint in {folder}{by}, is half-made or half-copied: {DONE}, the last file of a savepoint, is missing",
        "wait if it is being created or copied; else remove it with `streamwork savepoint drop job.py NAME`, or copy it "
        "again. Nothing was started or changed",
    )


def _part(disk: Disk, folder: Path, record: SavepointRecord, path: str, kind: type[T]) -> T:
    ref = record.files.get(path)
    if ref is None:
        raise damaged(SAVEPOINT_FILE, folder / DONE, f"does not name {path}")
    return decode_sealed(folder / path, ref.read(disk, folder, SAVEPOINT_FILE), kind, SAVEPOINT_FILE)
