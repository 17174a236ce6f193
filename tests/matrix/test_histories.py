"""Exactly-once, whatever comes together: any history, clocks, full disks, bad events, other records, random results."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crashes import Crash
from matrix.faults import HOW, Fault, damage
from matrix.oracles import check, check_agreement, check_closed, check_echo, check_ledgers, check_state, fold, line
from matrix.points import OTHER, POINTS, PREPARED, RECOVERY, Outcome, Point, outcome_of
from matrix.stories import behind, cases, crash_and_go_on, ruin_newest
from matrix.targets import LOCAL, SINKS
from matrix.watched import OPERATORS
from matrix.world import EVENTS, MORE, RETAIN, SLICE, World
from sample import Payment, Seen, payments
from streamwork import KeyedOperator, Record, Refused, StreamworkError
from tiers import quick_every

pytestmark = pytest.mark.usefixtures("short_chains")
every_sink = pytest.mark.parametrize("sinks", SINKS.values(), ids=SINKS)


# ---- any history ----------------------------------------------------------------------------------------------------


DAMAGEABLE = ("checkpoints", "state", "outputs")


def any_history(folder: Path, seed: int, operator: str = "sums", once: bool = False) -> str:
    """Lives that break anywhere; between them files go bad, and sinks are brought back from copies. How it ended.

    `once`: only a single file goes bad in the whole history, and no sink is brought back.
    """
    rng = random.Random(seed)
    sinks = [some for some in LOCAL.values() if operator == "sums" or some != ("latest",)]
    world = World(folder, rng.choice(sinks), operator)
    wanted = check_agreement if operator == "draws" else check
    events = payments(14 * SLICE, cards=5)
    copies: dict[str, Callable[[], None]] = {}
    for life in range(rng.randint(2, 6)):
        world.slice = rng.choice([SLICE, SLICE, SLICE - 1, 2 * SLICE])
        number = rng.choice([rng.randint(1, 60), rng.randint(1, 600)])
        broken = world.live(events[: (life + 2) * 2 * SLICE], Fault("*", number, dead=rng.random() < 0.7), must=False)
        if broken.error is not None and not isinstance(broken.error, Crash):
            return broken.code
        name = rng.choice(world.sinks)
        target = world.log / "log.json" if name == "log" else world.database
        if not once and rng.random() < 0.3 and target.exists():
            copies.pop(name)() if name in copies else copies.update({name: world.keep_copy(name)})
        found = [path for folder in DAMAGEABLE for path in sorted(world.home.glob(f"{folder}/**/*.*"))]
        count = int(not world.lost and rng.random() < 0.5) if once else rng.choice([0, 1, 1, 3])
        for path in rng.sample(found, k=min(len(found), count)):
            damage(path, rng.choice(HOW))
            world.lost.add(world.name(path))
    before = world.substance() if world.uid else {}
    world.slice = SLICE
    life = world.live(events)
    if life.error is not None:
        assert isinstance(life.error, Refused), life.error
        assert not before or world.substance() == before, "SAFE"
        return life.code
    wanted(world, events)
    return "right"


@pytest.mark.slow(seed=list(range(4, 10)))
@pytest.mark.slow(operator="draws")
@pytest.mark.parametrize("operator", ["sums", "draws"])
@pytest.mark.parametrize("seed", range(10))
def test_any_history_ends_right_or_is_refused(folder: Path, seed: int, operator: str) -> None:
    assert any_history(folder, seed, operator)


@pytest.mark.slow(seed=list(range(4, 10)))
@pytest.mark.parametrize("seed", range(10))
def test_a_history_in_which_one_file_goes_bad_ends_right(folder: Path, seed: int) -> None:
    assert any_history(folder, seed, once=True) == "right"


# ---- the clock ------------------------------------------------------------------------------------------------------


def finish(world: World) -> None:
    """Let every timer ring."""
    world.clock.sleep(86_400)
    world.live(MORE).survived()
    check(world, MORE)


@pytest.mark.slow(operator="sums")
@pytest.mark.parametrize("operator", ["sums", "timers"])
@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("at", quick_every(2, ["told plan *", "told prepare *", "told commit *"]))
def test_the_clock_may_be_moved_between_two_lives(folder: Path, hours: int, operator: str, at: str) -> None:
    world = World(folder, SINKS["SQLite + log"], operator)
    world.live(EVENTS, Fault(at, 4, dead=True))
    world.clock.sleep(3600 * hours)
    world.live(EVENTS, Fault("told complete *", 2))
    world.clock.sleep(-3600 * hours)
    world.live(EVENTS).survived()
    finish(world)


@pytest.mark.parametrize("hours", quick_every(2, [-1, 0, 1]))
@pytest.mark.parametrize("count", [1, RETAIN])
def test_timers_ring_in_the_same_epochs_when_they_are_computed_again(folder: Path, count: int, hours: int) -> None:
    world = World(folder, SINKS["SQLite + log"], "timers")
    world.live(EVENTS).survived()
    world.clock.sleep(5)
    ruin_newest(world, count)
    world.clock.sleep(3600 * hours)
    life = world.live(MORE).survived()
    assert outcome_of(world, life, 0) is Outcome.CATCHES_UP
    finish(world)


def time_and_again(folder: Path, operator: str, count: int) -> None:
    """The epochs of the newest checkpoints are computed again, at another time; then more."""
    world = World(folder, SINKS["SQLite + log"], operator)
    world.live(EVENTS).survived()
    world.clock.sleep(5.000321)
    ruin_newest(world, count)
    life = world.live(MORE).survived()
    assert outcome_of(world, life, 0) is Outcome.CATCHES_UP
    check_agreement(world, MORE)


@pytest.mark.parametrize("count", [1, RETAIN])
def test_operators_see_the_same_time_when_an_epoch_is_computed_again(folder: Path, count: int) -> None:
    time_and_again(folder, "now", count)


def test_the_machine_s_clock_shows_another_time(folder: Path) -> None:
    """The control."""
    with pytest.raises(AssertionError, match="AGREEMENT"):
        time_and_again(folder, "the machine's clock", 1)


@pytest.mark.parametrize("operator", ["timers", "now"])
def test_without_the_plans_that_hold_the_ticks_nothing_is_guessed(folder: Path, operator: str) -> None:
    world = World(folder, SINKS["SQLite + log"], operator)
    world.live(EVENTS).survived()
    ruin_newest(world, 1)
    for plan in world.home.glob("checkpoints/*.plan.json"):
        damage(plan, "flipped")
    before = world.substance()
    assert world.live(MORE).code == "SW-STATE-DIVERGES"
    assert world.substance() == before, "SAFE"


# ---- full disks, bad events, other records --------------------------------------------------------------------------


@pytest.mark.parametrize("number", quick_every(4, range(7, 500, 29)))
@pytest.mark.proves("the disk becomes full at any moment")
def test_a_disk_that_is_full_from_some_moment_on(folder: Path, number: int) -> None:
    """Whatever is to be written then; and once there is room again the job goes on."""
    world = World(folder, SINKS["SQLite + log"])
    life = world.live(EVENTS, Fault("before [!d]*", number, OSError))
    assert isinstance(life.error, OSError | StreamworkError)
    world.live(MORE).survived()
    check(world, MORE)


POISONED = [*EVENTS[:20], Payment("card-1", -1), *EVENTS[20:]]


@pytest.mark.parametrize("sinks", quick_every(4, SINKS.values()), ids=SINKS)
@pytest.mark.proves("an operator that raises")
def test_an_event_on_which_the_operator_raises_stops_the_job_before_its_epoch(
    folder: Path, sinks: tuple[str, ...]
) -> None:
    world = World(folder, sinks)
    for _ in range(2):
        life = world.live(POISONED)
        assert isinstance(life.error, StreamworkError) and "an amount below zero" in str(life.error)
        check(world, POISONED[: 20 // SLICE * SLICE])
    mended = [Payment(event.card, abs(event.amount)) for event in POISONED]
    world.live(mended).survived()
    check(world, mended)


@pytest.mark.slow(on_error="drop")
@pytest.mark.parametrize("on_error", ["drop", "dead-letter"])
@pytest.mark.parametrize("point", quick_every(3, POINTS[::2]), ids=lambda point: point.name)
@pytest.mark.proves("an operator that raises")
def test_an_event_that_is_given_up_is_given_up_once(folder: Path, point: Point, on_error: str) -> None:
    world = World(folder, SINKS["SQLite + log"])
    world.on_error = on_error
    world.live(POISONED, list(point.faults())[-1])
    world.live(POISONED).survived()
    good = [event for event in POISONED if event.amount >= 0]
    check_echo(world, good)
    check_state(world, fold(good)[1])
    check_ledgers(world)
    check_closed(world, len(POISONED))
    counted = Counter[str]()
    for manifest in line(world):
        counted.update(manifest["counters"]["sums"])
    assert (counted["dropped"], counted["dead_letters"]) == ((1, 0) if on_error == "drop" else (0, 1))
    assert len(list(world.home.glob("dead-letters/sums/*"))) == counted["dead_letters"]


class Others(Record):
    number: str = ""
    total: int = 0


class Otherwise(KeyedOperator[Payment, Others, Seen]):
    def apply(self, event: Payment, state: Others, collector: Any) -> None:
        state.number += "1"
        collector.emit(Seen(event.card, len(state.number), 0))


@pytest.mark.parametrize("sinks", quick_every(4, LOCAL.values()), ids=LOCAL)
@pytest.mark.parametrize("fault", [None, PREPARED], ids=["at rest", "with an epoch prepared"])
def test_another_record_is_refused_before_anything_is_written(
    folder: Path, fault: Fault | None, sinks: tuple[str, ...]
) -> None:
    world = World(folder, sinks)
    world.live(EVENTS, fault)
    before = world.everything()
    world.operator = "otherwise"
    life = world.live(MORE)
    assert outcome_of(world, life, 0) is OTHER["an incompatible record"]
    assert world.everything() == before, "SAFE"
    world.operator = "sums"
    world.live(MORE).survived()
    check(world, MORE)


OPERATORS["otherwise"] = lambda world: Otherwise()


# ---- what cannot be computed again ----------------------------------------------------------------------------------


@pytest.mark.parametrize("point", quick_every(3, POINTS), ids=lambda point: point.name)
@pytest.mark.proves("random operators, any point")
def test_random_results_agree_wherever_the_job_breaks(folder: Path, point: Point) -> None:
    world = World(folder, SINKS["SQLite + log"], "draws")
    assert crash_and_go_on(world, list(point.faults())[-1], check_agreement, epochs=5) is point.outcome


@pytest.mark.parametrize(("before", "fault"), quick_every(3, cases(RECOVERY)))
def test_random_results_agree_wherever_a_start_breaks(folder: Path, before: Fault, fault: Fault) -> None:
    world = World(folder, SINKS["SQLite + log"], "draws")
    world.live(EVENTS, before)
    world.live(EVENTS, replace(fault, dead=True))
    world.live(MORE).survived()
    check_agreement(world, MORE)


@pytest.mark.parametrize("by", [1, 2])
def test_random_results_are_given_again_to_a_sink_that_is_behind(folder: Path, by: int) -> None:
    world = World(folder, SINKS["SQLite + log"], "draws")
    behind(world, by)
    world.live(MORE).survived()
    check_agreement(world, MORE)


@pytest.mark.parametrize("count", [1, RETAIN])
def test_random_results_are_not_computed_again_behind_a_sink_unless_somebody_accepts_that(
    folder: Path, count: int
) -> None:
    world = World(folder, SINKS["SQLite + log"], "draws")
    world.live(EVENTS).survived()
    ruin_newest(world, count)
    before = world.substance()
    assert world.live(MORE).code == "SW-STATE-DIVERGES"
    assert world.substance() == before, "SAFE"
    world.live(MORE, accept_divergence=True).survived()
    check_ledgers(world)
    check_closed(world, len(MORE))
    with pytest.raises(AssertionError, match="AGREEMENT: .* was made from another sum"):
        check_agreement(world, MORE)  # this is what was accepted; and the checker sees it
