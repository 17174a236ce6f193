"""Exactly-once: wherever a life of a job breaks, the next one goes on to the same results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crashes import Crash
from matrix.cells import Cell, cells, each, recovery_cells
from matrix.faults import Fault, damage
from matrix.oracles import check
from matrix.points import BEHIND, DAMAGES, Outcome, outcome_of
from matrix.stories import behind, crash_and_go_on, fallen_back, places, ruin_newest
from matrix.targets import SINKS
from matrix.world import EVENTS, MORE, RETAIN, SLICE, World
from sample import payments

pytestmark = pytest.mark.usefixtures("short_chains")


# ---- crashes in an epoch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", cells("exactly-once"))
def test_a_job_that_breaks_at_any_point_ends_with_the_same_results(folder: Path, cell: Cell) -> None:
    point, sinks = cell.point, cell.sinks
    early, late = point.faults()
    if sinks in (SINKS["SQLite"], SINKS["SQLite + log"]):  # a driver that is closed is the same to every sink
        assert crash_and_go_on(World(folder / "early", sinks), early, epochs=4) is point.outcome
    assert crash_and_go_on(World(folder / "late", sinks), late, epochs=5) is point.outcome


@pytest.mark.slow
def test_nowhere_in_an_epoch_can_a_crash_do_harm(folder: Path) -> None:
    """Not only at the points that have a name: at every change of a file, of an epoch with snapshots and retention."""
    sinks = SINKS["log + SQLite, upsert"]
    whole = World(folder / "whole", sinks)
    whole.live(EVENTS).survived()
    found = places(whole.trace, "told prune 5", "told prune 6")
    assert len(found) > 30
    for number in found:
        crash_and_go_on(World(folder / str(number), sinks), Fault("*", number, dead=True), epochs=6)


@pytest.mark.parametrize("sinks", [SINKS["log"], SINKS["SQLite + log"]], ids=" + ".join)
def test_an_interrupt_in_the_last_sync_of_a_log_transaction(folder: Path, sinks: tuple[str, ...]) -> None:
    """As Ctrl-C does: the driver is still there to clean up, and must not take back what may have been decided."""
    crash_and_go_on(World(folder, sinks), Fault("before sync log/transactions/*", 3))


def test_a_kill_in_the_last_sync_of_a_log_transaction(folder: Path) -> None:
    crash_and_go_on(World(folder, SINKS["SQLite + log"]), Fault("before sync log/transactions/*", 3, dead=True))


# ---- crashes in a recovery ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "fault", "sinks"), recovery_cells())
def test_a_start_that_breaks_is_made_again(folder: Path, before: Fault, fault: Fault, sinks: tuple[str, ...]) -> None:
    for dead in (False, True) if sinks == SINKS["SQLite + log"] else (True,):
        world = World(folder / str(dead), sinks)
        world.live(EVENTS[: 5 * SLICE], before)
        broken = world.live(EVENTS[: 5 * SLICE], replace(fault, dead=dead))
        assert isinstance(broken.error, Crash) and not broken.completed[1:]
        world.live(EVENTS[: 6 * SLICE]).survived()
        check(world, EVENTS[: 6 * SLICE])


@pytest.mark.slow
def test_nowhere_in_a_start_that_falls_back_can_a_crash_do_harm(folder: Path) -> None:
    whole = fallen_back(folder / "whole")
    whole.trace.clear()
    whole.live(EVENTS).survived()
    found = places(whole.trace, "before create fences/2.json", "told prune 9")
    assert len(found) > 30
    start = fallen_back(folder / "start")
    for number in found:
        world = start.fork(folder / str(number))
        world.live(EVENTS, Fault("*", number, dead=True))
        world.live(MORE).survived()
        check(world, MORE)


# ---- falling back, and sinks that are behind ------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "outcome", "sinks"), each(DAMAGES))
def test_without_the_newest_manifests_a_job_falls_back(
    folder: Path, count: int, outcome: Outcome, sinks: tuple[str, ...]
) -> None:
    world = World(folder, sinks)
    world.live(EVENTS).survived()
    assert len(world.checkpoints) == RETAIN + 1
    ruin_newest(world, count)
    before = world.everything()
    life = world.live(MORE)
    assert outcome_of(world, life, 0) is outcome
    if life.error is not None:
        assert world.everything() == before, "SAFE"
    else:
        check(world, MORE)


@pytest.mark.slow(size=4 * SLICE)
@pytest.mark.slow(lost="no plan")
@pytest.mark.parametrize("lost", ["no plan", "a plan", "every plan"])
@pytest.mark.parametrize("size", [SLICE, SLICE - 1, 4 * SLICE])
def test_the_way_back_to_the_sinks_may_be_cut_anew(folder: Path, size: int, lost: str) -> None:
    world = fallen_back(folder)
    plans = sorted(world.home.glob("checkpoints/*.plan.json"))
    for plan in {"no plan": [], "a plan": plans[-1:], "every plan": plans}[lost]:
        damage(plan, "flipped")
    world.slice = size
    world.live(MORE).survived()
    check(world, MORE)


@pytest.mark.parametrize(("by", "outcome", "sinks"), each(BEHIND))
def test_a_sink_that_was_brought_back_from_a_copy(
    folder: Path, by: int, outcome: Outcome, sinks: tuple[str, ...]
) -> None:
    world = World(folder, sinks)
    behind(world, by)
    before = world.substance()
    life = world.live(MORE)
    assert outcome_of(world, life, 0) is outcome
    if life.error is not None:
        assert world.substance() == before, "SAFE"
    else:
        check(world, MORE)


@pytest.mark.parametrize("step", ["register", "commit", "ready"])
def test_a_sink_that_is_behind_gets_each_row_once_also_if_the_start_breaks(folder: Path, step: str) -> None:
    world = World(folder, SINKS["SQLite + log"])
    behind(world, 2)
    world.live(EVENTS, Fault(f"told {step} *", dead=True))
    world.live(MORE).survived()
    check(world, MORE)


@pytest.mark.parametrize("crash", [None, Fault("told rebase *"), Fault("told rebase *", 2), Fault("told ready *")])
def test_sinks_whose_rows_came_from_a_manifest_that_is_lost(folder: Path, crash: Fault | None) -> None:
    """Checkpoint 8 is lost, 9 computes the same again, and then the sinks are brought back as 8 left them."""
    world = World(folder, SINKS["SQLite + log"])
    world.live(EVENTS).survived()
    bring_back = [world.keep_copy(name) for name in world.sinks]
    ruin_newest(world, 1)
    world.live(payments(9 * SLICE, cards=5)).survived()
    for bring in bring_back:
        bring()
    if crash is not None:
        assert isinstance(world.live(MORE, crash).error, Crash)
    life = world.live(MORE).survived()
    assert life.started is not None
    assert crash is not None or "where sink log is, too" in " ".join(life.started.story)
    check(world, MORE)
