"""Worlds in which rows are written at once: at-most-once, and at-least-once by checkpoint or by acknowledging."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matrix.faults import Fault
from matrix.oracles import (
    check_at_least_once,
    check_at_most_once,
    check_counts,
    check_nothing_left_over,
    check_state_at_once,
    echoed,
)
from matrix.points import Outcome, outcome_of
from matrix.world import SLICE, World
from sample import Payment

PROMISES = {
    "at-most-once": ("at-most-once", None),
    "at-least-once": ("at-least-once", "checkpoint"),
    "acknowledging": ("at-least-once", "acknowledge"),
}
EVENTS = echoed(8 * SLICE)


def world_of(folder: Path, promise: str, sinks: tuple[str, ...] = ("journal",)) -> World:
    semantics, tracking = PROMISES[promise]
    return World(folder, sinks, "echo", semantics, tracking)


def break_and_go_on(world: World, fault: Fault, epochs: int, events: Sequence[Payment] = EVENTS) -> Outcome:
    """One life that breaks and one that does not, and has more input; what the second one did."""
    assert world.live(events[: epochs * SLICE], fault).error is not None
    spent = max(world.plans, default=0)
    life = world.live(events).survived()
    return outcome_of(world, life, spent)


def check_promise(
    world: World, events: Sequence[Payment] = EVENTS, at_no_cost: bool = False, without: frozenset[int] = frozenset()
) -> int:
    """Everything that the semantics of a world promise; how much a failure has cost. Where it must not cost anything, a promise
    is the same as exactly-once. `without` are events that were given up, and that nobody left out.
    """
    assert len(world.in_doubt) <= SLICE * world.broken, "only one epoch is open at a time"
    if world.semantics == "at-most-once":
        left_out = set() if at_no_cost else world.in_doubt
        cost = check_at_most_once(world, events, left_out)
        check_state_at_once(world, events, left_out | without)
        check_counts(world, len(events) - len(left_out))
    else:
        cost = check_at_least_once(world, events, set() if at_no_cost else None, tuple(without))
        check_state_at_once(world, events, set(without))
        check_counts(world, len(events))
    check_nothing_left_over(world)
    return cost
