"""``streamwork checkpoints``: what is stored of a job, and whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamwork.epoch import Manifest, Store
from streamwork.epoch.fences import Fences, Life
from streamwork.epoch.history.history import KEEP, Result, Row, rows
from streamwork.epoch.manifest import Plan
from streamwork.epoch.recovery.verify import Verifier
from streamwork.epoch.store import PLAN, PREPARED, Stored
from streamwork.errors import Refused, WrongUse
from streamwork.world import Clock, RealDisk, RealProcesses

MEND = "bring the files back from a copy; the next start sets aside what it cannot use, and goes on from what is whole"

NOTHING = (Result.ABANDONED, Result.FAILED)


def open_store(root: Path, job: str) -> Store:
    """The folder of a job that has run."""
    store = Store(RealDisk(), root, job)
    if store.identity() is None:
        raise WrongUse(
            "SW-ROOT-EMPTY",
            f"{root} holds nothing of a job {job!r}",
            "check --root and the job's name; has it run yet?",
        )
    return store


def list_checkpoints(root: Path, job: str, clock: Clock, verify: bool = False) -> list[dict[str, Any]]:
    """Newest first: number, state, age, events, keys, bytes, how long each step took.

    The states: completed, pruned (completed, and no longer kept), prepared, damaged (a file of it, as far as `verify` looks),
    quarantined (set aside by a start), abandoned (its driver gave it up), interrupted (its driver was killed or stopped in the
    middle of it), planned (under way), and unknown (its plan cannot be read).
    """
    store = open_store(root, job)
    verifier = Verifier(store) if verify else None
    past: dict[int, Row] = {}
    for row in rows(store.folder / "history.sqlite", KEEP):
        if row.epoch not in past or (row.outcome.committed and not past[row.epoch].outcome.committed):
            past[row.epoch] = row
    stored = store.stored()
    found = {one.epoch: _stored(store, one, verifier) for one in stored}
    for epoch, fence in store.quarantined().items():
        found.setdefault(epoch, {"state": "quarantined", "set_aside_by": fence})
    plans = {epoch: _plan(store, epoch) for epoch in store.plans()}
    parents = {plan.parent for plan in plans.values() if plan is not None}
    parents |= {one.manifest.parent for one in stored if one.manifest is not None}
    at_work = _at_work(store, clock)
    for epoch, plan in plans.items():
        if epoch not in found:
            under_way = plan is not None and plan.fence == at_work and epoch > max(store.completed(), default=0)
            found[epoch] = {"state": _planned(plan, past.get(epoch), epoch in parents, under_way)}
    oldest = min((epoch for epoch in found if epoch), default=0)
    for epoch, row in past.items():  # also those whose plans are gone by now
        if row.outcome in NOTHING and epoch >= oldest:
            found.setdefault(epoch, {"state": "abandoned"})
    for epoch, facts in found.items():
        written = _written_at(store, epoch, past.get(epoch))
        facts["age_seconds"] = None if written is None else round(clock.now() - written, 1)
        if epoch in past:
            facts.setdefault("fence", past[epoch].fence)
            facts["seconds"], facts["note"] = past[epoch].seconds, past[epoch].note
    return [{"checkpoint": epoch, **found[epoch]} for epoch in sorted(found, reverse=True)]


def _planned(plan: Plan | None, row: Row | None, is_parent: bool, under_way: bool) -> str:
    """What became of an epoch of which only the plan is there. Plans stay as long as an older checkpoint is kept, so most of
    them were completed; a later epoch then builds on it, as the later plan says for as long as this one is kept.
    """
    if row is not None:
        return "abandoned" if row.outcome in NOTHING else "pruned"
    if plan is None:
        return "unknown"
    return "pruned" if is_parent else "planned" if under_way else "interrupted"


def _plan(store: Store, epoch: int) -> Plan | None:
    try:
        return store.plan(epoch)
    except Refused:
        return None


def _at_work(store: Store, clock: Clock) -> int | None:
    """The fence of the driver that runs, or may run on another machine."""
    holder = Fences(store.disk, store.folder, clock, RealProcesses()).holder()
    return None if holder is None or holder.life in (Life.GONE, Life.ENDED) else holder.fence


def _stored(store: Store, stored: Stored, verifier: Verifier | None) -> dict[str, Any]:
    if stored.manifest is None:
        return {"state": "damaged", "problems": [stored.problem]}
    problems = [stored.problem + "; its other copy is whole, and is used"] if stored.problem else []
    if verifier is not None:
        problems += [f"{problem.path}: {problem.what}" for problem in verifier.problems(stored.manifest)]
        problems += _misfits(store, stored.manifest)
    state = "damaged" if problems else "completed" if stored.completed else "prepared"
    facts = {"state": state, **_facts(stored.manifest)}
    return {**facts, "problems": problems} if problems else facts


def _misfits(store: Store, manifest: Manifest) -> list[str]:
    """What is wrong with the plan and the prepared copy, which a start needs only if the completed one is lost."""
    if manifest.epoch == 0:
        return []  # made with the folder: nobody has planned or prepared it
    found = []
    prepared = store.folder / "checkpoints" / f"{manifest.epoch:012d}{PREPARED}"
    if not store.disk.exists(prepared) or store.disk.read(prepared) != manifest.to_bytes():
        found.append(f"{prepared} is missing or was changed; its other copy is whole, and is used")
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
