"""`SavepointList`: the savepoints of a job, also those that are half-made or damaged."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from streamwork.components import Position
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.savepoints import FOLDER, Savepoint
from streamwork.epoch.savepoints.input import MissingInput, missing_input
from streamwork.epoch.savepoints.record import Expected, read_begun
from streamwork.errors import Refused
from streamwork.job import Graph
from streamwork.job.params import Value
from streamwork.world import Disk


class SavepointState(Enum):
    COMPLETE = "complete"
    HALF_MADE = "half-made"  # being written, or its writer was killed
    DAMAGED = "damaged"  # or of a newer format: `problem` says which


class SavepointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One savepoint. What its files do not say is unset."""

    name: str
    path: str
    state: SavepointState
    created: float | UnsetType = UNSET
    by: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    checkpoint: int | UnsetType = UNSET
    bytes: int | UnsetType = UNSET
    rows: int | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    input_gone: tuple[MissingInput, ...] | UnsetType = UNSET  # unset if the sources are not known


class SavepointDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What one savepoint holds."""

    info: SavepointInfo
    job: str
    uid: str
    written_by: str
    format: int
    semantics: str
    tracking: str
    positions: Position
    beyond: Position
    manifest_sha256: str
    parallelism: dict[str, int]
    ledgers: dict[str, Expected]
    params: dict[str, Value]
    origin: str
    files: dict[str, int]  # path -> bytes
    problems: list[str]  # of its files


class SavepointList(msgspec.Struct, frozen=True, kw_only=True):
    """The savepoints of a job, oldest first."""

    job: str
    root: str
    savepoints: list[SavepointInfo]


def read_savepoints(root: Path, job: str, graph: Graph | None = None) -> SavepointList:
    """With the graph of the job, each savepoint says whether its sources still have what follows it."""
    store = open_store(root, job)
    folder = store.folder / FOLDER
    begun = [
        name for name in store.disk.names(folder) if store.disk.names(folder / name)
    ]  # a killed writer leaves empty ones
    found = [savepoint_info(store.disk, folder / name, graph) for name in begun]
    found.sort(key=lambda one: (one.created if isinstance(one.created, float) else float("inf"), one.name))
    return SavepointList(job=job, root=str(root), savepoints=found)


def savepoint_info(disk: Disk, folder: Path, graph: Graph | None = None) -> SavepointInfo:
    try:
        savepoint = Savepoint.open(disk, folder)
    except Refused as refused:
        state = SavepointState.HALF_MADE if refused.code == "SW-SAVEPOINT-INCOMPLETE" else SavepointState.DAMAGED
        begun = read_begun(disk, folder)
        return SavepointInfo(
            name=folder.name,
            path=str(folder),
            state=state,
            created=UNSET if begun is None else begun.created,
            by=UNSET if begun is None else begun.by,
            note=UNSET if begun is None else begun.note,
            problem=refused.cause,
        )
    record = savepoint.record
    return SavepointInfo(
        name=folder.name,
        path=str(folder),
        state=SavepointState.COMPLETE,
        created=record.created,
        by=record.by,
        note=record.note,
        checkpoint=record.epoch,
        bytes=record.bytes,
        rows=record.rows,
        input_gone=UNSET if graph is None else tuple(missing_input(graph, record.positions)),
    )


def read_savepoint(disk: Disk, folder: Path, graph: Graph | None = None, verify: bool = False) -> SavepointDetails:
    """Refuses a folder without a complete savepoint. With `verify`, every file is compared with its hash."""
    savepoint = Savepoint.open(disk, folder)
    record = savepoint.record
    return SavepointDetails(
        info=savepoint_info(disk, folder, graph),
        job=record.job,
        uid=record.uid,
        written_by=record.written_by,
        format=record.format,
        semantics=record.semantics,
        tracking=record.tracking,
        positions=record.positions,
        beyond=record.beyond,
        manifest_sha256=record.manifest_sha256,
        parallelism=record.parallelism,
        ledgers=record.ledgers,
        params={} if isinstance(record.params, UnsetType) else record.params,
        origin="" if isinstance(record.origin, UnsetType) else record.origin,
        files={path: ref.bytes for path, ref in sorted(record.files.items())},
        problems=[problem.what for problem in savepoint.problems()] if verify else [],
    )
