"""At-most-once and at-least-once: what a failure costs, wherever it strikes, whatever the sink."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from matrix.cells import Cell, cells
from matrix.faults import Fault, damage
from matrix.oracles import check_at_least_once, check_at_most_once, check_state_at_once, dropped, ids_of
from matrix.points import Outcome
from matrix.promises import EVENTS, PROMISES, break_and_go_on, check_promise, world_of
from matrix.stories import Retrying, TaskLost, Twice, places, ruin_newest, two_drivers
from matrix.targets import AT_ONCE
from matrix.watched import WatchedSource
from matrix.world import RETAIN, SLICE
from sample import Payment
from streamwork import StreamworkError
from tiers import quick_every

pytestmark = pytest.mark.usefixtures("short_chains")
every_promise = pytest.mark.parametrize("promise", PROMISES)
IDS = {event.amount for event in EVENTS}


@pytest.mark.parametrize("cell", cells(*PROMISES))
def test_a_job_that_breaks_at_any_point_keeps_its_promise(folder: Path, cell: Cell) -> None:
    point, world = cell.point, world_of(folder, cell.promise, cell.sinks)
    wanted = point.outcome
    if wanted is Outcome.COMPUTES_AGAIN and world.semantics == "at-most-once":
        wanted = Outcome.LEAVES_OUT
    pruning = point.late is None
    nth = point.fault.nth if pruning else point.fault.nth + (point.fault.at.startswith("told"))
    fault = replace(point.fault, nth=nth, dead=point.fault.error is not OSError)
    events = EVENTS[: (6 if pruning else 4) * SLICE]
    assert break_and_go_on(world, fault, 5 if pruning else 3, events) is wanted
    check_promise(world, events, at_no_cost=wanted in (Outcome.GOES_ON, Outcome.ROLLS_FORWARD))


@pytest.mark.parametrize("promise", PROMISES)
def test_a_failure_costs_something_somewhere(folder: Path, promise: str) -> None:
    """Or nothing would have been tested: with a sink that shows it, a crash loses rows, or brings them twice."""
    costs = []
    for number, at in enumerate(["told plan *", "has written *"]):
        world = world_of(folder / str(number), promise)
        break_and_go_on(world, Fault(at, 2, dead=True), 3)
        costs.append(check_promise(world))
    assert any(costs)


# ---- falling back ---------------------------------------------------------------------------------------------------


@every_promise
@pytest.mark.parametrize("count", [1, RETAIN, RETAIN + 1])
@pytest.mark.proves("fallback by 1 checkpoint, or to the oldest", "all manifests damaged")
def test_without_the_newest_manifests_a_job_falls_back(folder: Path, count: int, promise: str) -> None:
    """At-most-once does not read again what was planned, also if the state has lost it; at-least-once reads it again."""
    world = world_of(folder, promise, ("journal", "log"))
    world.live(EVENTS[: 6 * SLICE]).survived()
    left = json.loads(world.checkpoints[-count - 1].read_bytes())["positions"] if count <= RETAIN else {}
    ruin_newest(world, count)
    before = world.everything()
    life = world.live(EVENTS)
    if count > RETAIN:
        assert life.code == "SW-CHECKPOINT-NONE"
        assert world.everything() == before, "SAFE"
        return
    life.survived()
    gone = set(range(left["payments/0"], 6 * SLICE))
    if promise == "at-most-once":
        check_at_most_once(world, EVENTS, set())
        check_state_at_once(world, EVENTS, gone)
    else:
        assert check_at_least_once(world, EVENTS, gone) == len(gone)
        check_state_at_once(world, EVENTS, set())


@pytest.mark.proves("the plan of an open epoch damaged")
def test_without_the_plan_of_an_open_epoch_at_most_once_refuses(folder: Path) -> None:
    """What it planned may have been written: nobody knows what to leave out."""
    world = world_of(folder, "at-most-once")
    world.live(EVENTS, Fault("has written *", 3, dead=True))
    damage(sorted(world.home.glob("checkpoints/*.plan.json"))[-1], "flipped")
    before = world.rows("journal")
    assert world.live(EVENTS).code == "SW-CHECKPOINT-DAMAGED"
    assert world.rows("journal") == before, "SAFE"


class Growing(WatchedSource):
    """Starts at the latest; events come when the job is ready for them."""

    arriving: Sequence[Payment] = ()
    latest_asked = False

    def latest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        self.latest_asked = True
        return super().latest(partitions)

    def partitions(self) -> list[str]:
        if any(line.startswith("told prune") for line in self.world.trace) and self.latest_asked:
            self._events += self.arriving
            self.arriving = ()
        return super().partitions()


@pytest.mark.parametrize("at", ["told plan *", "has written *", "told prepare *", "told complete *"])
@pytest.mark.proves('a source with start="latest"')
def test_a_source_that_starts_at_the_latest_counts_what_it_skips(
    folder: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """What arrived while the job was down is skipped, and told; all else is there, or was open."""
    world = world_of(folder, "at-most-once")
    skipped: set[int] = set()

    def live(there: int, upto: int, fault: Fault | None = None) -> None:
        world.trace.clear()
        monkeypatch.setattr("matrix.world.WatchedSource", lambda *given, **named: source)
        source = Growing(EVENTS[:there], Payment, max_events=SLICE, start="latest")
        source.arriving = EVENTS[there:upto]
        life = world.live(EVENTS, fault)
        assert life.started is not None
        for was, now in life.started.skipped.values():
            skipped.update(range(was, now))

    live(SLICE, 4 * SLICE, Fault(at, 2, dead=True))
    live(5 * SLICE, 8 * SLICE)
    assert set(range(SLICE)) <= skipped <= set(range(5 * SLICE))
    assert check_at_most_once(world, EVENTS, world.in_doubt | skipped) >= 2 * SLICE


# ---- a task that is run twice, two drivers --------------------------------------------------------------------------


@every_promise
@pytest.mark.parametrize("sinks", [AT_ONCE["SQLite"], AT_ONCE["SQLite + log"]], ids=" + ".join)
@pytest.mark.proves("a task run twice")
def test_every_task_is_run_twice(folder: Path, sinks: tuple[str, ...], promise: str) -> None:
    world = world_of(folder, promise, sinks)
    world.host = Twice
    world.live(EVENTS).survived()
    if promise == "at-most-once":
        assert check_at_most_once(world, EVENTS, set()) == 0
        assert dropped(world) == len(sinks) * len(EVENTS), "the second attempt of each has written nothing"
    else:
        assert check_at_least_once(world, EVENTS, IDS) == len(EVENTS)
    check_state_at_once(world, EVENTS, set())


LOST_AT = ["apply *", "about to write *", "rows written to *", "has written *", "after create state/*"]


@every_promise
@pytest.mark.parametrize("at", quick_every(3, [*LOST_AT, "before create claims/*", "after create claims/*"]))
@pytest.mark.proves("a task lost at any point, and run again")
def test_a_task_is_lost_and_run_again(folder: Path, at: str, promise: str) -> None:
    if "claims" in at and promise != "at-most-once":
        return
    world = world_of(folder, promise, ("journal", "log"))
    world.host = Retrying
    world.live(EVENTS[: 2 * SLICE])
    fault = Fault(at, 2, TaskLost)
    world.live(EVENTS, fault).survived()
    struck = set(range(2 * SLICE, 4 * SLICE))
    if promise == "at-most-once":
        missing = check_at_most_once(world, EVENTS)
        assert missing <= dropped(world)
    else:
        check_at_least_once(world, EVENTS, struck)
    check_state_at_once(world, EVENTS, set())


@pytest.mark.slow(promise="acknowledging")
@pytest.mark.slow(promise="at-least-once")
@every_promise
@pytest.mark.proves("two drivers, the older one is suspended at any durable effect, and resumes")
def test_a_driver_that_stands_still_anywhere_and_wakes_up_breaks_no_promise(folder: Path, promise: str) -> None:
    """At every durable effect of an epoch; the other driver goes to the end of the input meanwhile."""
    whole = world_of(folder / "whole", promise)
    whole.live(EVENTS).survived()
    found = places(whole.trace, "told prune 3", "told prune 4")
    assert len(found) > 10
    taken_over = 0
    for number in found:
        world, life = two_drivers(world_of(folder / str(number), promise), number, EVENTS)
        if world.taken_over:  # else a lock of the older one was in the way
            assert life.code in ("SW-SINK-FENCED", "SW-DRIVER-FENCED"), life.error
        taken_over += world.taken_over
        world.live(EVENTS).survived()
        if promise == "at-most-once":
            check_at_most_once(world, EVENTS)
        else:
            check_at_least_once(world, EVENTS)
            check_state_at_once(world, EVENTS, set())
        assert len(world.in_doubt) <= 2 * SLICE
    assert taken_over >= len(found) - 2


# ---- events on which the operator raises, full disks ----------------------------------------------------------------

POISON = 20
AFTERWARDS = ["", "told plan *", "has written *", "told prepare *", "told complete *"]


@pytest.mark.slow(promise="at-least-once")
@pytest.mark.slow(on_error="drop")
@pytest.mark.parametrize("on_error", ["fail", "drop", "dead-letter", None])
@every_promise
@pytest.mark.proves("an operator that raises")
def test_an_event_that_nobody_can_do(folder: Path, promise: str, on_error: str | None) -> None:
    """It stops the job, or it is given up once, wherever the job breaks besides."""
    stops = on_error == "fail" or (on_error is None and promise == "at-least-once")
    for number, at in enumerate([""] if stops else AFTERWARDS):
        world = world_of(folder / str(number), promise)
        world.flaky[POISON] = 10**9
        world.on_error = on_error
        if at:
            world.live(EVENTS, Fault(at, POISON // SLICE + 1, dead=True))
        life = world.live(EVENTS)
        if stops:
            assert isinstance(life.error, StreamworkError) and "not now" in str(life.error)
            world.flaky.clear()
            world.live(EVENTS).survived()
            check_promise(world)
            continue
        life.survived()
        at_no_cost = at in ("", "told prepare *", "told complete *")
        is_open = POISON in world.in_doubt and promise == "at-most-once" and not at_no_cost
        check_promise(world, at_no_cost=at_no_cost, without=frozenset([POISON]))
        assert POISON not in ids_of(world, "journal")
        letters = sorted(world.home.glob("dead-letters/sums/*.parquet"))
        keeps = on_error == "dead-letter" or (on_error is None and promise == "acknowledging")
        assert len(letters) == (keeps and not is_open), "one letter, once"


@pytest.mark.parametrize(
    "at", ["", "told plan *", "has written *", "told prepare *", "before create inbox/*", "told prune *"]
)
@pytest.mark.proves("an operator that raises sometimes")
def test_an_event_that_fails_twice_comes_again(folder: Path, at: str) -> None:
    """Under acknowledging. Attempts survive a restart: it fails twice in all, and is done the third time."""
    world = world_of(folder, "acknowledging", ("journal", "log"))
    world.flaky.update({7: 2, 20: 1, 21: 2})
    if at:
        world.live(EVENTS, Fault(at, 4 if at.startswith("told") else 2, dead=True))
    world.live(EVENTS).survived()
    check_at_least_once(world, EVENTS)
    check_state_at_once(world, EVENTS, set())
    assert not sorted(world.home.glob("dead-letters/*/*"))
    assert all(Counter(ids_of(world, name))[7] >= 1 for name in world.sinks)


@pytest.mark.slow(promise="acknowledging")
@pytest.mark.slow(promise="at-least-once")
@every_promise
@pytest.mark.parametrize("number", quick_every(2, range(11, 300, 41)))
@pytest.mark.proves("the disk becomes full at any moment")
def test_a_disk_that_is_full_from_some_moment_on(folder: Path, number: int, promise: str) -> None:
    world = world_of(folder, promise, ("journal", "log"))
    life = world.live(EVENTS, Fault("before [!d]*", number, OSError), must=False)
    world.live(EVENTS).survived()
    if promise == "at-most-once":
        check_at_most_once(world, EVENTS)
    else:
        check_at_least_once(world, EVENTS)
        check_state_at_once(world, EVENTS, set())
    assert life.error is None or len(world.in_doubt) <= SLICE
