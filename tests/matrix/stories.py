"""Stories that tests of the matrix tell: a life that breaks and one that does not, sinks ahead, sinks behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from matrix.faults import HOW, Fault, damage
from matrix.oracles import check
from matrix.points import Outcome, outcome_of
from matrix.targets import SINKS
from matrix.world import EVENTS, MORE, RETAIN, SLICE, Life, World
from sample import Payment
from streamwork import StreamworkError
from streamwork.engine import Assignment, Report
from streamwork.hosts.local import LocalHost
from streamwork.job import Layout

Check = Callable[[World, Sequence[Payment]], None]


def cases(items: Any) -> list[Any]:
    return [pytest.param(*item[1:], id=item[0]) for item in items]


def crash_and_go_on(world: World, fault: Fault, wanted: Check = check, epochs: int = len(EVENTS) // SLICE) -> Outcome:
    """One life that breaks and one that does not; what the second one did, once everything has been checked."""
    broken = world.live(MORE[: epochs * SLICE], fault)
    assert broken.error is not None
    spent = max((int(path.name[:12]) for path in world.home.glob("checkpoints/*.plan.json")), default=0)
    events = MORE[: (epochs + 1) * SLICE + 2]
    life = world.live(events).survived()
    wanted(world, events)
    return outcome_of(world, life, spent)


def places(trace: list[str], begin: str, end: str) -> list[int]:
    """The numbers of the lines between two at which more is on disk or in a sink than at the line before."""
    lines = list(enumerate(trace, 1))[trace.index(begin) : trace.index(end) + 1]
    telling = ("before", "rows written", "told commit", "told prune")
    return [number for number, text in lines if text.startswith(telling) and text != trace[number - 2]]


def ruin_newest(world: World, count: int) -> None:
    for path, how in zip(reversed(world.checkpoints[-count:]), 2 * HOW, strict=False):
        for copy in world.copies(int(path.name[:12])).values():
            damage(copy, how)


def fallen_back(folder: Path) -> World:
    """A world with two sinks that are ahead of everything that can be read."""
    world = World(folder, SINKS["SQLite + log"])
    world.live(EVENTS).survived()
    ruin_newest(world, RETAIN)
    return world


def behind(world: World, by: int) -> None:
    """Let the last sink's target be what it was `by` checkpoints before the end."""
    name, epochs, kept = world.sinks[-1], len(EVENTS) // SLICE, []

    def on_line(line: str) -> None:
        if line == f"told prune {epochs - by}":
            kept.append(world.keep_copy(name))

    world.on_line = on_line
    world.live(EVENTS).survived()
    world.on_line = None
    kept[0]()


def failure(attempt: Callable[[], Any]) -> str:
    """What a cell of the matrix fails with; empty if it holds."""
    try:
        attempt()
    except (AssertionError, StreamworkError) as error:
        return str(error).splitlines()[0]
    return ""


def two_drivers(
    first: World, at: str | int, events: Sequence[Payment] = MORE, until: Fault | None = None
) -> tuple[World, Life]:
    """The first driver stands still at some line, a second one takes over and goes to the end, then the first goes on.

    The line is given by its words, or by its number. With `until` the second one breaks, too.
    """
    second = first.twin()
    seen = 0

    def on_line(line: str) -> None:
        nonlocal seen
        seen += 1
        if at in (line, seen):
            first.on_line = None
            first.in_doubt |= first.open_now()
            first.taken_over = second.live(events, until).code != "SW-SINK-FAILED"
            first.in_doubt |= second.in_doubt

    first.on_line = on_line
    life = first.live(events)
    assert first.on_line is None, f"{at} was never met"
    first.processes.life = second.processes.life + 1
    first._tokens = iter(range(2 * 10**6, 10**9))
    return first, life


class Twice(LocalHost):
    """Runs every task again when it is done, as Spark may do; the second attempt counts."""

    def submit(self, layout: Layout, works: Sequence[Assignment]) -> None:
        self._given = layout, works
        super().submit(layout, works)

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        super().collect(epoch, expired)
        self.abandon()
        super().submit(*self._given)
        return super().collect(epoch, expired)


class TaskLost(KeyboardInterrupt):  # all that passes through an operator's step as it is
    """A task is gone in the middle of something."""


class Retrying(Twice):
    """Runs tasks again where one was lost."""

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        try:
            return LocalHost.collect(self, epoch, expired)
        except TaskLost:
            LocalHost.submit(self, *self._given)
            return LocalHost.collect(self, epoch, expired)
