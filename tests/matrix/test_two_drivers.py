"""Two drivers on one job: the older one stands still at every durable effect in turn, and wakes up when the newer one is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.faults import Fault
from matrix.oracles import check
from matrix.stories import Retrying, TaskLost, Twice, places, two_drivers
from matrix.targets import SINKS
from matrix.world import EVENTS, MORE, SLICE, World
from tiers import quick_every

pytestmark = pytest.mark.usefixtures("short_chains")
FENCED = ("SW-SINK-FENCED", "SW-DRIVER-FENCED")


@pytest.mark.parametrize("at", [f"told {step} 3" for step in ("plan", "compute", "prepare", "complete", "prune")])
def test_a_driver_that_wakes_up_after_another_has_taken_over_does_no_harm(folder: Path, at: str) -> None:
    world, life = two_drivers(World(folder, SINKS["SQLite + log"]), at)
    assert life.code in FENCED
    world.live(MORE).survived()
    check(world, MORE)


@pytest.mark.parametrize("third", quick_every(3, range(3)))
@pytest.mark.parametrize("sinks", quick_every(4, ["SQLite + log", "Parquet", "PostgreSQL, upsert", "Redis"]))
@pytest.mark.proves("two drivers, the older one is suspended at any durable effect, and resumes")
def test_a_driver_may_stand_still_anywhere(folder: Path, sinks: str, third: int) -> None:
    """At every durable effect of an epoch, those of its sinks included. Each case has a third of them."""
    whole = World(folder / "whole", SINKS[sinks])
    whole.live(EVENTS[: 5 * SLICE]).survived()
    found = places(whole.trace, "told prune 3", "told prune 4")[third::3]
    taken_over = 0
    for number in found:
        world, life = two_drivers(World(folder / str(number), SINKS[sinks]), number, EVENTS[: 5 * SLICE])
        if world.taken_over:  # else a lock of the older one was in the way
            assert life.code in FENCED
        taken_over += world.taken_over
        world.live(EVENTS[: 6 * SLICE]).survived()
        check(world, EVENTS[: 6 * SLICE])
    assert taken_over >= len(found) - 2


@pytest.mark.parametrize("at", [None, "apply *", "after create state/*", "before write outputs/*"])
@pytest.mark.proves("a task lost, or run twice")
def test_a_task_that_is_run_twice_counts_once(folder: Path, at: str | None) -> None:
    world = World(folder, SINKS["SQLite + log"])
    world.host = Retrying if at else Twice
    world.live(MORE, Fault(at, 9, TaskLost) if at else None).survived()
    world.live(MORE).survived()
    check(world, MORE)
