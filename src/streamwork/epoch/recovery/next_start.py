"""`NextStart`: what the next start does if the driver is killed at a given point of an epoch. Pure: it reads no file.

It is not a second copy of the rules. The manifests and the ledger rows are built as the kill leaves them, and passed to the policy
of a start (`epoch.recovery.restore_point.choose`). All files are taken to be intact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streamwork.components import LedgerRow, Position
from streamwork.epoch.manifest import Manifest, Plan, SinkPart
from streamwork.epoch.phases import Phase
from streamwork.epoch.recovery.catalogue import Catalogue
from streamwork.epoch.recovery.restore_point import RestorePoint, choose
from streamwork.epoch.recovery.sink_paths import SinkPaths
from streamwork.epoch.store import Stored
from streamwork.job.semantics import Promise

PROTOCOL = (Phase.PLAN, Phase.COMPUTE, Phase.REPORT, Phase.PREPARE, Phase.COMMIT, Phase.COMPLETE, Phase.PRUNE)
"""The phases of an epoch, in order."""


class Action(Enum):
    """What a start does about an epoch."""

    READ_AGAIN = "read again"  # its number is spent; the same input is read by the next epoch
    LEAVE_OUT = "leave out"  # likewise, but its input is not read again (at-most-once)
    ROLL_FORWARD = "roll forward"  # its staged outputs are offered to the sinks, and its manifest is completed
    GO_ON = "go on"  # it is completed: nothing to do


@dataclass(frozen=True)
class EpochFacts:
    """What the policy needs to know of an epoch."""

    plan: Plan
    end: Position  # of its slice
    sinks: Mapping[str, bool]  # those with a ledger, in the order of their commits; True: its first epoch
    promise: Promise


@dataclass(frozen=True)
class Kill:
    """The driver is killed when a phase of the epoch is done; of COMMIT, when these sinks have committed."""

    after: Phase
    committed: tuple[str, ...] = ()

    def has_done(self, phase: Phase) -> bool:
        return PROTOCOL.index(phase) <= PROTOCOL.index(self.after)


@dataclass(frozen=True)
class NextStart:
    """What the start after a kill does."""

    action: Action
    resumes_at: int  # the checkpoint
    reads_from: Position  # where its first epoch begins
    offered: tuple[str, ...] = ()  # the sinks that get the staged outputs of the epoch
    held: tuple[str, ...] = ()  # the sinks whose ledger row shows that they have them


def kills(facts: EpochFacts) -> list[Kill]:
    """The points of an epoch after which a start finds something else, in order; COMMIT once for each sink."""
    sinks = tuple(facts.sinks) if facts.promise.exactly_once else ()
    found: list[Kill] = []
    for phase in PROTOCOL:
        if phase is Phase.COMMIT:
            found += [Kill(phase, sinks[: count + 1]) for count in range(len(sinks))]
        else:
            found.append(Kill(phase, sinks if phase in (Phase.COMPLETE, Phase.PRUNE) else ()))
    return found


def next_start(facts: EpochFacts, kill: Kill) -> NextStart:
    """What the next start does after this kill."""
    parent, epoch = _manifests(facts)
    stored = [Stored(parent.epoch, True, parent)]
    if kill.has_done(Phase.PREPARE):
        stored.insert(0, Stored(epoch.epoch, kill.has_done(Phase.COMPLETE), epoch))
    ledgers = {name: _row(facts, name, epoch if name in kill.committed else parent) for name in facts.sinks}
    catalogue = Catalogue(stored, {}, _Intact())
    paths = SinkPaths(catalogue, registered=list(facts.sinks))
    point = choose(catalogue, paths, ledgers if facts.promise.exactly_once else {}, lambda at, position: "")
    offered = tuple(dict.fromkeys(sink for sink, _ in point.offers))
    action = _action(facts, point)
    return NextStart(
        action=action,
        resumes_at=point.at.epoch,
        reads_from=facts.end if action is Action.LEAVE_OUT else point.at.positions,
        offered=offered,
        held=tuple(name for name in kill.committed if name not in offered),
    )


def _action(facts: EpochFacts, point: RestorePoint) -> Action:
    if not point.completed:
        return Action.ROLL_FORWARD
    if point.at.epoch == facts.plan.epoch:
        return Action.GO_ON
    return Action.LEAVE_OUT if facts.promise.at_most_once else Action.READ_AGAIN


def _manifests(facts: EpochFacts) -> tuple[Manifest, Manifest]:
    """Stand-ins for the manifest of the parent, which may be pruned, and that of the epoch, which may not be written. The policy
    compares hashes, and asks for nothing else that they do not have.
    """
    plan = facts.plan
    before = [name for name, first in facts.sinks.items() if not first]
    parent = _manifest(plan, plan.parent, plan.start, "", {name: SinkPart() for name in before})
    parts = {name: SinkPart(first=first) for name, first in facts.sinks.items()}
    return parent, _manifest(plan, plan.epoch, facts.end, parent.sha256, parts)


def _manifest(plan: Plan, epoch: int, at: Position, parent: str, sinks: dict[str, SinkPart]) -> Manifest:
    return Manifest(
        epoch=epoch,
        parent=plan.parent,
        parent_sha256=parent,
        fence=plan.fence,
        uid="",
        positions=at,
        components={},
        sinks=sinks,
        counters={},
        fingerprint="",
    )


def _row(facts: EpochFacts, sink: str, at: Manifest) -> LedgerRow:
    """The ledger row of a sink that is at this manifest."""
    if sink not in at.sinks:
        return LedgerRow(facts.plan.fence, None, "")
    return LedgerRow(facts.plan.fence, at.positions, at.sha256)


class _Intact:
    """The health of files that are all there."""

    def state_problem(self, manifest: Manifest) -> str:
        return ""

    def staged_problem(self, manifest: Manifest, sink: str) -> str:
        return ""
