"""`Route`: how a job catches up with a sink that is ahead of the restored manifest.

The epochs that a sink is ahead by were planned, and plans are kept. So the same slices are computed again, with the same ticks of
the clock. Where a plan is lost, a job without timers may cut other slices, but never across the position of a sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamwork.components import Position
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.job import Graph


@dataclass(frozen=True)
class Leg:
    """One slice that was planned before."""

    before: Position  # where the job stands when it is due
    start: Position
    end: Position
    ticks: tuple[int, ...]


@dataclass(frozen=True)
class Route:
    """The slices up to the sinks that are ahead."""

    legs: tuple[Leg, ...] = ()
    limits: tuple[Position, ...] = ()  # no plan reaches across one of these

    def leg(self, at: Position) -> Leg | None:
        """The leg to take from here, if there is one."""
        return next((leg for leg in self.legs if leg.before == at), None)

    def capped(self, start: Position, end: Position) -> Position:
        """`end`, drawn back to the nearest limit that still lies ahead of `start`."""
        for limit in self.limits:
            if not start.reaches(limit):
                near = limit.furthest(start)
                end = Position({name: min(offset, near[name]) for name, offset in end.items()})
        return end

    def done(self, at: Position) -> bool:
        return all(at.reaches(limit) for limit in self.limits)


def legs_to(at: Manifest, target: Position, plans: Iterable[Plan]) -> tuple[Leg, ...] | None:
    """The legs from a manifest to a position, as they were planned; None if one is lost.

    Followed backwards: each plan names its parent. A start that fell back before may have gone part of the way already, in
    epochs of other numbers; so where it stands is recognised by position.
    """
    by_epoch = {plan.epoch: plan for plan in plans}
    newest = sorted(by_epoch.values(), key=lambda plan: (plan.fence, plan.epoch), reverse=True)
    for last in (plan for plan in newest if plan.end == target):
        legs = _back(at, last, by_epoch)
        if legs is not None:
            return legs
    return None


def _back(at: Manifest, last: Plan, by_epoch: dict[int, Plan]) -> tuple[Leg, ...] | None:
    legs: list[Leg] = []
    plan: Plan | None = last
    while plan is not None and plan.end.beyond(at.positions):
        parent = by_epoch.get(plan.parent)
        here = plan.parent in (at.epoch, at.reached_by) or (parent is not None and parent.end == at.positions)
        if not here and parent is None:
            return None
        before = at.positions if here or parent is None else parent.end
        legs.insert(0, Leg(before, plan.start, plan.end, plan.ticks))
        if here:
            return tuple(legs)
        plan = parent
    return None


def route(at: Manifest, ahead: Sequence[Position], plans: Iterable[Plan]) -> Route:
    """How to get from `at` to every one of `ahead`."""
    known = list(plans)
    legs: dict[Position, Leg] = {}
    for target in sorted(ahead, key=lambda position: sum(position.values()), reverse=True):
        for leg in legs_to(at, target, known) or ():
            legs.setdefault(leg.before, leg)
    limits = tuple(sorted(ahead, key=lambda position: sum(position.values())))
    return Route(tuple(legs.values()), limits)


def not_replayable(graph: Graph, at: Manifest, position: Position, plans: Iterable[Plan]) -> str:
    """Why what lies between a manifest and a position cannot be computed again with the same result; empty if it can."""
    for node in graph.nodes:
        if not getattr(node.component, "deterministic", True):
            return f"{node.id} is not deterministic"
    if at.positions == position:
        return ""
    if graph.polled:
        return f"source {graph.polled[0].id} has no offsets to read the same events by"
    if graph.reads_clock and not route(at, [position], plans).legs:
        return "the plans that hold the ticks of its clock are gone"
    return ""
