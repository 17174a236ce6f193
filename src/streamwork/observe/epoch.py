"""`EpochDetails`: one epoch of a job with its plan, its files, its positions and what was counted in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from streamwork.components import Position
from streamwork.epoch.history.reading import counts, rows_of
from streamwork.epoch.history.values import Result, Row
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.store import Store
from streamwork.errors import Refused, WrongUse
from streamwork.observe.checkpoints import CheckpointState, read_checkpoints
from streamwork.world import Clock, FileRef


class PlanView(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """What an epoch was to read."""

    parent: int
    fence: int
    start: Position
    end: Position


class ManifestView(msgspec.Struct, frozen=True):
    parent: int
    parent_sha256: str
    fence: int
    sha256: str
    events: int
    positions: Position
    counters: dict[str, dict[str, int]]
    watermarks: dict[str, int]  # microseconds since 1970, by source/partition


class FileView(msgspec.Struct, frozen=True):
    """A file that a manifest names."""

    path: str
    kind: str  # state, output, letters, waiting
    component: str
    instance: str
    bytes: int
    sha256: str
    present: bool


class InstanceView(msgspec.Struct, frozen=True):
    """What one instance counted in an epoch; -1: all instances together."""

    component: str
    instance: int
    outcome: Result
    counts: dict[str, int]


class EpochDetails(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    root: str
    epoch: int
    state: CheckpointState
    attempts: Sequence[Row]
    plan: PlanView | None
    manifest: ManifestView | None
    files: list[FileView]
    instances: list[InstanceView]
    problems: list[str]


def read_epoch(root: Path, job: str, epoch: int, clock: Clock) -> EpochDetails:
    """Refuses an epoch that neither the folder nor the history knows (SW-EPOCH-UNKNOWN)."""
    store = open_store(root, job)
    history = store.folder / "history.sqlite"
    attempts = rows_of(history, epoch)
    listed = next((one for one in read_checkpoints(root, job, clock).checkpoints if one.checkpoint == epoch), None)
    if listed is None and not attempts:
        raise WrongUse(
            "SW-EPOCH-UNKNOWN",
            f"job {job} has no epoch {epoch}, or no longer knows it",
            "`streamwork history job.py` lists the epochs that are known",
        )
    committed = any(one.outcome.committed for one in attempts)
    forgotten = CheckpointState.PRUNED if committed else CheckpointState.ABANDONED
    manifest = _manifest(store, epoch)
    plan = _plan(store, epoch)
    return EpochDetails(
        job=job,
        root=str(root),
        epoch=epoch,
        state=forgotten if listed is None else listed.state,
        attempts=attempts,
        plan=None if plan is None else PlanView(plan.parent, plan.fence, plan.start, plan.end),
        manifest=None if manifest is None else _view(manifest),
        files=[] if manifest is None else files_of(store, manifest),
        instances=[
            InstanceView(one.counts.component, one.counts.instance, one.outcome, one.counts.numbers)
            for one in counts(history, epoch)
        ],
        problems=list((listed and listed.problems) or ()),
    )


def files_of(store: Store, manifest: Manifest) -> list[FileView]:
    """Every file that a manifest names."""
    found = [
        _file(store, "state", component, instance, ref)
        for component, instances in manifest.components.items()
        for instance, chain in instances.items()
        for ref in chain
    ]
    found += [
        _file(store, "output", sink, by, ref)
        for sink, part in manifest.sinks.items()
        for by, ref in part.staged.items()
    ]
    found += [
        _file(store, "letters", component, by, ref)
        for component, letters in manifest.letters.items()
        for by, ref in letters.items()
    ]
    return found + [_file(store, "waiting", "", "", ref) for ref in manifest.failed]


def _file(store: Store, kind: str, component: str, instance: str, ref: FileRef) -> FileView:
    return FileView(
        ref.path, kind, component, instance, ref.bytes, ref.sha256, store.disk.exists(store.folder / ref.path)
    )


def _view(manifest: Manifest) -> ManifestView:
    return ManifestView(
        manifest.parent,
        manifest.parent_sha256,
        manifest.fence,
        manifest.sha256,
        manifest.events,
        manifest.positions,
        manifest.counters,
        manifest.watermarks,
    )


def _manifest(store: Store, epoch: int) -> Manifest | None:
    try:
        return store.manifest(epoch)
    except (Refused, OSError):
        return store.set_aside(epoch)


def _plan(store: Store, epoch: int) -> Plan | None:
    try:
        return store.plan(epoch)
    except (Refused, OSError):
        return None
