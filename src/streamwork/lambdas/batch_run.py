"""`run_batch`: a batch run, from scratch, and the switch of the view to it.

1  seam     the newest completed checkpoint of the streaming job in which no event waits to be retried
2  claim    claims/RUN.json: from now on the streaming job keeps what lies behind the seam apart
3  compute  a job of its own, in a root of its own, over all input up to the positions of the seam; it is exactly-once
4  check    its last checkpoint has exactly those positions
5  switch   view/RUN.json: one file, created whole or not at all
6  tidy     roots of runs that no reader needs are removed

a crash behind                          what the view shows; what happens then
1                                       the run before; nothing was written
2, 3, 4                                 the run before; the next run has the next number and begins from scratch
5                                       this run; the next one tidies up
two runs at once                        each has a number of its own; whichever switches, the highest number is shown
a fall back of the streaming job        the run is not shown where the seam is not in its past (`Reader.contains`); the next
                                        run claims a checkpoint that is not below any claim, else it is refused until then
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from streamwork.components import Position
from streamwork.epoch import Manifest, Store
from streamwork.epoch.job_folder import open_store
from streamwork.errors import JobFailed, Refused, WrongUse
from streamwork.lambdas.definition import Lambda
from streamwork.lambdas.seams import FOLDER, Flip, Seam, SeamFolder
from streamwork.query.following import Following
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run
from streamwork.run.stopping import Stop
from streamwork.run.watcher import Watcher
from streamwork.world import Clock, Disk, RealClock, RealDisk


class BatchRun(msgspec.Struct, frozen=True):
    """A batch run that the view shows."""

    name: str  # of the lambda
    run: int
    checkpoint: int  # of the streaming job: the seam
    events: int
    seconds: float
    root: str
    removed: tuple[int, ...]  # runs that no reader needs
    notes: tuple[str, ...] = ()


def run_batch(
    definition: Lambda[Any],
    root: Path,
    *,
    mode: Mode = Mode.BATCH,
    accept_gone: bool = False,
    watcher: Watcher | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
    stop: Stop | None = None,
    **options: Any,
) -> BatchRun:
    """Compute everything from scratch up to the newest checkpoint of the streaming job, whose root this is; it may be running.

    `options` are more options of the run (`RunOptions`). `accept_gone`: input that the first run has counted is gone.
    """
    if mode not in (Mode.BATCH, Mode.LOCAL):
        raise WrongUse("SW-USAGE", f"a batch run cannot run in mode {mode.value}", "use --mode batch or --mode local")
    clock, disk = clock or RealClock(), disk or RealDisk()
    began, store = clock.monotonic(), open_store(root, definition.name)
    folder = SeamFolder(disk, store.folder / FOLDER)
    seam, notes = claim(definition, folder, store, clock, accept_gone)
    chosen = RunOptions.parse(mode=mode, root=folder.root(seam.run), until_caught_up=True, **options)
    outcome = run(definition.recompute(seam.positions), chosen, watcher, clock, stop)
    manifest = _complete(Store(disk, chosen.root, mode.folder(definition.name)), seam)
    seconds = round(clock.monotonic() - began, 3)
    folder.flip(Flip(seam.run, mode.folder(definition.name), manifest.uid, clock.now(), seconds, outcome.events))
    removed = folder.remove_old()
    return BatchRun(
        definition.name, seam.run, seam.epoch, outcome.events, seconds, str(chosen.root), tuple(removed), notes
    )


def claim(
    definition: Lambda[Any], folder: SeamFolder, store: Store, clock: Clock, accept_gone: bool = False
) -> tuple[Seam, tuple[str, ...]]:
    """1, 2. (the seam, notes for the operator)"""
    identity = store.identity()
    assert identity is not None
    manifest = _newest(Following.of(store.folder, {}))
    while True:
        before = folder.look()
        highest = max(before.claims.values(), default=0)
        if manifest.epoch < highest:
            raise JobFailed(
                "SW-LAMBDA-SEAM",
                f"the streaming job {definition.name} is at checkpoint {manifest.epoch}, and a batch run counts up to {highest}: "
                "the job has gone back",
                f"start the batch run again when the job has come to checkpoint {highest}",
            )
        begins = definition.begins(manifest.positions)
        notes = _check_beginning(definition, folder, before.claims, begins, accept_gone)
        seam = Seam(
            before.next_run, manifest.epoch, manifest.fence, identity.uid, manifest.positions, begins, clock.now()
        )
        try:
            folder.claim(seam)
            return seam, notes
        except FileExistsError:  # another run was faster
            continue


def _newest(following: Following) -> Manifest:
    look = following.look()
    assert look is not None
    for manifest in look.manifests:
        if manifest.epoch in look.completed and manifest.epoch and not manifest.failed:
            return manifest
    raise JobFailed(
        "SW-LAMBDA-SEAM",
        f"{following.store.folder} has no completed checkpoint in which no event waits to be retried",
        "start the batch run again when the streaming job has completed one",
    )


def _check_beginning(
    definition: Lambda[Any], folder: SeamFolder, claims: Mapping[int, int], begins: Mapping[str, int], accept: bool
) -> tuple[str, ...]:
    """Input that an earlier run has counted must be there; else the results would shrink."""
    earlier = [seam.begins for run in sorted(claims) if (seam := _readable(folder, run)) is not None]
    if not earlier:
        gone = {name: at for name, at in begins.items() if at}
        return tuple(f"{name} begins at {at:,}: what was before is not counted" for name, at in gone.items())
    lost = {name: at for name, at in begins.items() if at > earlier[0].get(name, at)}
    if lost and not accept:
        name, at = next(iter(lost.items()))
        raise JobFailed(
            "SW-LAMBDA-GONE",
            f"{name} begins at {at:,} now, and at {earlier[0][name]:,} when lambda {definition.name} was first computed: events "
            "are gone, and a run from scratch would not count them",
            "keep the input longer, or restore it; `streamwork lambda run job.py --accept-gone` computes without it",
        )
    return tuple(f"{name} begins at {at:,}: what was before is no longer counted" for name, at in lost.items())


def _readable(folder: SeamFolder, run: int) -> Seam | None:
    try:
        return folder.seam(run)
    except Refused:
        return None


def _complete(store: Store, seam: Seam) -> Manifest:
    """4."""
    manifest = store.manifest(max(store.completed(), default=0))
    ends = {name: end for name, end in seam.positions.items() if "/" in name}
    if any(manifest.positions[name] != end for name, end in ends.items()):
        raise JobFailed(
            "SW-LAMBDA-INCOMPLETE",
            f"batch run {seam.run} ended at {manifest.positions}, and not at {Position(ends)}: it was stopped, or input is missing",
            "start another batch run: `streamwork lambda run job.py`; the view still shows the run before",
        )
    return manifest
