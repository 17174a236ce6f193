"""`CheckpointList`: the checkpoints of a job, and whether their files are intact."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from streamwork.components import Position
from streamwork.epoch import Manifest, Store
from streamwork.epoch.fences import Fences, Life
from streamwork.epoch.history.history import KEEP
from streamwork.epoch.history.reading import rows
from streamwork.epoch.history.values import Row, Seconds
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.manifest import Plan
from streamwork.epoch.recovery.verify import Verifier
from streamwork.epoch.store import PLAN, PREPARED, Stored
from streamwork.errors import Refused
from streamwork.world import Clock, RealProcesses


class CheckpointState(Enum):
    COMPLETED = "completed"
    PRUNED = "pruned"  # completed, and no longer kept
    PREPARED = "prepared"
    DAMAGED = "damaged"  # a file is missing or changed, as far as `verify` checks
    QUARANTINED = "quarantined"  # set aside by a start
    ABANDONED = "abandoned"  # by its driver
    INTERRUPTED = "interrupted"  # its driver was killed or stopped
    PLANNED = "planned"  # in progress
    UNKNOWN = "unknown"  # its plan cannot be read


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint. What its files and the history do not contain is unset."""

    checkpoint: int
    state: CheckpointState
    parent: int | UnsetType = UNSET
    fence: int | UnsetType = UNSET
    events: int | UnsetType = UNSET
    keys: int | UnsetType = UNSET
    state_files: int | UnsetType = UNSET
    state_bytes: int | UnsetType = UNSET
    positions: Position | UnsetType = UNSET
    sha256: str | UnsetType = UNSET
    problems: list[str] | UnsetType = UNSET
    set_aside_by: int | UnsetType = UNSET  # the fence of the start that set it aside
    age_seconds: float | None = None
    seconds: Seconds | UnsetType = UNSET
    note: str | UnsetType = UNSET


class CheckpointList(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints of a job, newest first."""

    job: str
    root: str
    ok: bool | UnsetType = UNSET  # unset if the files were not verified
    checkpoints: list[Checkpoint]

    @property
    def damaged(self) -> list[Checkpoint]:
        return [one for one in self.checkpoints if one.problems]


def read_checkpoints(root: Path, job: str, clock: Clock, verify: bool = False) -> CheckpointList:
    """The checkpoints of a job; with `verify`, every file is compared with its hash."""
    store = open_store(root, job)
    verifier = Verifier(store) if verify else None
    past: dict[int, Row] = {}
    for row in rows(store.folder / "history.sqlite", KEEP):
        if row.epoch not in past or (row.outcome.committed and not past[row.epoch].outcome.committed):
            past[row.epoch] = row
    stored = store.stored()
    found = {one.epoch: _stored(store, one, verifier) for one in stored}
    for epoch, fence in store.quarantined().items():
        found.setdefault(epoch, {"state": CheckpointState.QUARANTINED, "set_aside_by": fence})
    plans = {epoch: _plan(store, epoch) for epoch in store.plans()}
    parents = {plan.parent for plan in plans.values() if plan is not None}
    parents |= {one.manifest.parent for one in stored if one.manifest is not None}
    active = _active(store, clock)
    for epoch, plan in plans.items():
        if epoch not in found:
            in_progress = plan is not None and plan.fence == active and epoch > max(store.completed(), default=0)
            found[epoch] = {"state": _planned(plan, past.get(epoch), epoch in parents, in_progress)}
    oldest = min((epoch for epoch in found if epoch), default=0)
    for epoch, row in past.items():  # also those whose plans have been removed
        if not row.outcome.committed and epoch >= oldest:
            found.setdefault(epoch, {"state": CheckpointState.ABANDONED})
    for epoch, facts in found.items():
        written = _written_at(store, epoch, past.get(epoch))
        facts["age_seconds"] = None if written is None else round(clock.now() - written, 1)
        if epoch in past:
            facts.setdefault("fence", past[epoch].fence)
            facts["seconds"], facts["note"] = past[epoch].seconds, past[epoch].note
    listed = [Checkpoint(checkpoint=epoch, **found[epoch]) for epoch in sorted(found, reverse=True)]
    ok = not any(one.problems for one in listed) if verify else UNSET
    return CheckpointList(job=job, root=str(root), ok=ok, checkpoints=listed)


def _planned(plan: Plan | None, row: Row | None, is_parent: bool, in_progress: bool) -> CheckpointState:
    """The state of an epoch of which only the plan is left. Plans are kept as long as an older checkpoint, so that most of them
    belong to completed epochs: a later plan then names the epoch as its parent.
    """
    if row is not None:
        return CheckpointState.PRUNED if row.outcome.committed else CheckpointState.ABANDONED
    if plan is None:
        return CheckpointState.UNKNOWN
    if is_parent:
        return CheckpointState.PRUNED
    return CheckpointState.PLANNED if in_progress else CheckpointState.INTERRUPTED


def _plan(store: Store, epoch: int) -> Plan | None:
    try:
        return store.plan(epoch)
    except Refused:
        return None


def _active(store: Store, clock: Clock) -> int | None:
    """The fence of the driver that runs, or may run on another machine."""
    holder = Fences(store.disk, store.folder, clock, RealProcesses()).holder()
    return None if holder is None or holder.life in (Life.GONE, Life.ENDED) else holder.fence


def _stored(store: Store, stored: Stored, verifier: Verifier | None) -> dict[str, Any]:
    if stored.manifest is None:
        return {"state": CheckpointState.DAMAGED, "problems": [stored.problem]}
    problems = [stored.problem + "; its other copy is intact and is used"] if stored.problem else []
    if verifier is not None:
        problems += [f"{problem.path}: {problem.what}" for problem in verifier.problems(stored.manifest)]
        problems += _misfits(store, stored.manifest)
    facts = _facts(stored.manifest)
    if problems:
        return {**facts, "state": CheckpointState.DAMAGED, "problems": problems}
    return {**facts, "state": CheckpointState.COMPLETED if stored.completed else CheckpointState.PREPARED}


def _misfits(store: Store, manifest: Manifest) -> list[str]:
    """Problems of the plan and of the prepared copy, which a start needs only if the completed one is lost."""
    if manifest.epoch == 0:
        return []  # created with the folder, neither planned nor prepared
    found = []
    prepared = store.folder / "checkpoints" / f"{manifest.epoch:012d}{PREPARED}"
    if not store.disk.exists(prepared) or store.disk.read(prepared) != manifest.to_bytes():
        found.append(f"{prepared} is missing or was changed; its other copy is intact and is used")
    if manifest.is_computed:
        try:
            store.plan(manifest.epoch)
        except Refused as damaged:
            found.append(damaged.cause)
    return found


def _facts(manifest: Manifest) -> dict[str, Any]:
    files = [ref for instances in manifest.components.values() for chain in instances.values() for ref in chain]
    return {
        "parent": manifest.parent,
        "fence": manifest.fence,
        "events": manifest.events,
        "keys": sum(counters.get("keys", 0) for counters in manifest.counters.values()),
        "state_files": len(files),
        "state_bytes": sum(ref.bytes for ref in files),
        "positions": manifest.positions,
        "sha256": manifest.sha256,
    }


def _written_at(store: Store, epoch: int, row: Row | None) -> float | None:
    try:
        return store.written_at(epoch)
    except (StopIteration, OSError):
        pass
    try:
        return (store.folder / "checkpoints" / f"{epoch:012d}{PLAN}").stat().st_mtime
    except OSError:
        return None if row is None else row.started
