"""Reads the folder of a job, and explains one of its epochs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from streamwork.components import Position
from streamwork.epoch import Manifest, Phase, Store
from streamwork.epoch.history.values import Seconds
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.manifest import Plan
from streamwork.epoch.recovery.next_start import PROTOCOL, EpochFacts, Kill, kills, next_start
from streamwork.epoch.start_records import StartRecords
from streamwork.errors import Refused, WrongUse
from streamwork.job.semantics import EXACTLY_ONCE, Promise
from streamwork.observe.checkpoints import Checkpoint, CheckpointState, read_checkpoints
from streamwork.observe.explained import protocol
from streamwork.observe.explained.files import EpochFiles
from streamwork.observe.explained.model import CrashRow, ExplainedEpoch, LedgerFact, Step
from streamwork.world import Clock

DONE = (CheckpointState.COMPLETED, CheckpointState.PRUNED)
ENDS = {
    CheckpointState.COMPLETED: "Checkpoint {number} is completed and kept.",
    CheckpointState.PRUNED: "Checkpoint {number} was completed. Its manifest was pruned, and the files that only it named.",
    CheckpointState.PREPARED: "Checkpoint {number} is prepared. Its driver, or the next start, commits and completes it.",
    CheckpointState.PLANNED: "Epoch {number} is in progress.",
    CheckpointState.DAMAGED: "Checkpoint {number} is damaged: its manifest cannot be read.",
    CheckpointState.QUARANTINED: "A start could not use checkpoint {number}, and has set its manifest aside.",
}
"""How an epoch ended that did not simply fail to become a checkpoint."""


def explain_epoch(root: Path, job: str, clock: Clock, checkpoint: int | None = None) -> ExplainedEpoch:
    """Explain an epoch, by default the newest completed one. Refuses one that left no plan, or whose plan is gone."""
    store = open_store(root, job)
    listed = {one.checkpoint: one for one in read_checkpoints(root, job, clock).checkpoints}
    plans = {epoch: plan for epoch in store.plans() if (plan := _plan(store, epoch)) is not None}
    kept = tuple(epoch for epoch in sorted(plans, reverse=True) if epoch in listed)
    completed = [epoch for epoch in kept if listed[epoch].state is CheckpointState.COMPLETED]
    number = next(iter(completed or kept), 0) if checkpoint is None else checkpoint
    if number not in kept:
        raise _unknown(number, kept)
    return _Explanation(store, plans[number], listed[number]).model(root, job, kept, plans)


class _Explanation:
    def __init__(self, store: Store, plan: Plan, listed: Checkpoint) -> None:
        self._listed = listed
        self._manifest = _manifest(store, plan.epoch)
        self._before = _manifest(store, plan.parent)
        # Of an epoch that was planned before its parent had ended, the plan does not have the start.
        self._plan = plan if self._before is None else msgspec.structs.replace(plan, start=self._before.positions)
        self._files = EpochFiles(store, plan.epoch, self._manifest, self._before)
        starts = StartRecords(store.disk, store.folder / "fences")
        start = starts.all().get(plan.fence) or starts.last()  # that of an old fence may be gone
        promise = EXACTLY_ONCE if start is None else Promise.of(start.semantics, start.tracking or None)
        registered = () if start is None or isinstance(start.sinks, msgspec.UnsetType) else start.sinks
        self._facts = EpochFacts(self._plan, self._end(), self._sinks(registered), promise)

    def model(self, root: Path, job: str, kept: Sequence[int], plans: dict[int, Plan]) -> ExplainedEpoch:
        points = kills(self._facts)
        reached = self._reached()
        here = max(place for place, kill in enumerate(points) if kill.after is reached)
        return ExplainedEpoch(
            job=job,
            root=str(root),
            checkpoint=self._plan.epoch,
            state=self._listed.state,
            semantics=str(self._facts.promise),
            parent=self._plan.parent,
            fence=self._plan.fence,
            events=None if self._manifest is None else self._manifest.events,
            start=self._plan.start,
            end=self._facts.end,
            steps=tuple(self._step(phase, reached) for phase in PROTOCOL),
            crash_table=tuple(self._row(kill) for kill in points),
            here=here,
            story=self._story(plans),
            kept=tuple(kept),
        )

    def _end(self) -> Position:
        """The end of the slice. Of sources whose ends are known by report, the plan has no component."""
        return self._plan.start.moved(self._plan.end) if self._manifest is None else self._manifest.positions

    def _sinks(self, registered: Sequence[str]) -> dict[str, bool]:
        """The sinks with a ledger, and whether this epoch is the first that is written to them."""
        if self._manifest is not None:
            parts = self._manifest.sinks
            return {name: parts[name].first for name in registered or parts if name in parts}
        before = set() if self._before is None else set(self._before.sinks)
        return {name: name not in before for name in registered}

    def _reached(self) -> Phase:
        """The last step that this epoch is known to have done."""
        if self._listed.state in DONE:
            return Phase.PRUNE
        if self._manifest is not None:
            return Phase.PREPARE
        return Phase.COMPUTE if self._files.of(Phase.COMPUTE) else Phase.PLAN

    def _step(self, phase: Phase, reached: Phase) -> Step:
        text = protocol.words(phase, self._facts.promise.semantics)
        seconds = self._listed.seconds if isinstance(self._listed.seconds, Seconds) else Seconds()
        return Step(
            number=text.number,
            name=phase.value,
            does=text.does,
            durable=text.durable,
            reached=PROTOCOL.index(phase) <= PROTOCOL.index(reached),
            seconds=getattr(seconds, phase.value, None),
            files=self._files.of(phase),
            ledgers=self._ledgers() if phase is Phase.COMMIT else (),
        )

    def _ledgers(self) -> tuple[LedgerFact, ...]:
        if self._manifest is None or not self._facts.promise.exactly_once:
            return ()
        return tuple(LedgerFact(name, self._facts.end, self._manifest.sha256) for name in self._facts.sinks)

    def _row(self, kill: Kill) -> CrashRow:
        found = next_start(self._facts, kill)
        return CrashRow(
            step=kill.after.value,
            killed=protocol.killed(kill, self._facts),
            left=protocol.left(kill, self._facts),
            action=found.action.value,
            resumes_at=found.resumes_at,
            reads_from=found.reads_from,
            offered=found.offered,
            held=found.held,
            does=protocol.does(found, self._facts),
        )

    def _story(self, plans: dict[int, Plan]) -> str:
        """How the epoch ended."""
        state, number = self._listed.state, self._plan.epoch
        if state in ENDS:
            return ENDS[state].format(number=number)
        later = [one for one in plans.values() if one.epoch > number and one.start == self._plan.start]
        again = f" Epoch {min(later, key=lambda one: one.epoch).epoch} read the same input again." if later else ""
        return f"Epoch {number} is {state.value}: it never became a checkpoint.{again}"


def _plan(store: Store, epoch: int) -> Plan | None:
    try:
        return store.plan(epoch)
    except Refused:
        return None


def _manifest(store: Store, epoch: int) -> Manifest | None:
    """A manifest that is kept; None if it is gone or damaged."""
    try:
        return store.manifest(epoch)
    except Refused:
        return None


def _unknown(number: int, kept: Sequence[int]) -> WrongUse:
    if not kept:
        return WrongUse(
            "SW-CHECKPOINT-UNKNOWN",
            "this job has planned no epoch yet, so there is none to explain",
            "run the job; or see a small job in the simulator: `streamwork explain --simulate 1`",
        )
    return WrongUse(
        "SW-CHECKPOINT-UNKNOWN",
        f"there is no plan of an epoch {number}: it was never planned, or it is no longer kept",
        f"use one of {', '.join(map(str, kept[:10]))}; `streamwork checkpoints job.py` lists them",
    )
