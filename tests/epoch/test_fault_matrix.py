"""The fault matrix: wherever a life of a job breaks, the next one goes on to the same results. The cells are in `matrix`."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from crashes import Crash
from epoch.matrix import (
    BEHIND,
    DAMAGES,
    EVENTS,
    HOW,
    MORE,
    OPERATORS,
    OTHER,
    POINTS,
    PREPARED,
    RECOVERY,
    RETAIN,
    SINKS,
    SLICE,
    Fault,
    Life,
    Outcome,
    Point,
    World,
    check,
    check_agreement,
    check_closed,
    check_echo,
    check_ledgers,
    check_state,
    damage,
    fold,
    line,
    outcome_of,
    table,
)
from sample import Payment, Seen, payments
from streamwork import KeyedOperator, Record, Refused, SqliteSink, StreamworkError
from streamwork.components import LedgerEntry, LedgerRow
from streamwork.connectors import log, sqlite
from streamwork.epoch import Verdict, driver, recovery
from streamwork.epoch import commit as commit_rule
from streamwork.epoch.catch_up import Route
from streamwork.epoch.fences import Fences
from streamwork.epoch.store import Store
from streamwork.log.transactions import Transactions

Check = Callable[[World, Sequence[Payment]], None]


pytestmark = pytest.mark.usefixtures("short_chains")


def cases(items: Any) -> list[Any]:
    return [pytest.param(*item[1:], id=item[0]) for item in items]


every_sink = pytest.mark.parametrize("sinks", SINKS.values(), ids=SINKS)


# ---- crashes in an epoch --------------------------------------------------------------------------------------------


def crash_and_go_on(world: World, fault: Fault, check: Check = check, epochs: int = len(EVENTS) // SLICE) -> Outcome:
    """One life that breaks and one that does not; what the second one did, once everything has been checked."""
    broken = world.live(MORE[: epochs * SLICE], fault)
    assert broken.error is not None
    spent = max((int(path.name[:12]) for path in world.home.glob("checkpoints/*.plan.json")), default=0)
    events = MORE[: (epochs + 1) * SLICE + 2]
    life = world.live(events).survived()
    check(world, events)
    return outcome_of(world, life, spent)


@every_sink
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_a_job_that_breaks_at_any_point_ends_with_the_same_results(
    folder: Path, point: Point, sinks: tuple[str, ...]
) -> None:
    early, late = point.faults()
    if point.only(sinks):
        assert crash_and_go_on(World(folder / "early", sinks), early, epochs=4) is point.outcome
        assert crash_and_go_on(World(folder / "late", sinks), late, epochs=6) is point.outcome


def places(trace: list[str], begin: str, end: str) -> list[int]:
    """The numbers of the lines between two at which more is on disk or in a sink than at the line before."""
    lines = list(enumerate(trace, 1))[trace.index(begin) : trace.index(end) + 1]
    telling = ("before", "rows written", "told commit", "told prune")
    return [number for number, text in lines if text.startswith(telling) and text != trace[number - 2]]


def test_nowhere_in_an_epoch_can_a_crash_do_harm(folder: Path) -> None:
    """Not only at the points that have a name: at every change of a file, of an epoch with snapshots and retention."""
    sinks = SINKS["log + upsert"]
    whole = World(folder / "whole", sinks)
    whole.live(EVENTS).survived()
    found = places(whole.trace, "told prune 5", "told prune 6")
    assert len(found) > 30
    for number in found:
        crash_and_go_on(World(folder / str(number), sinks), Fault("*", number, dead=True), epochs=6)


@pytest.mark.parametrize("sinks", [SINKS["log"], SINKS["append + log"]], ids=" + ".join)
def test_an_interrupt_in_the_last_sync_of_a_log_transaction(folder: Path, sinks: tuple[str, ...]) -> None:
    """As Ctrl-C does: the driver is still there to clean up, and must not take back what may have been decided."""
    crash_and_go_on(World(folder, sinks), Fault("before sync log/transactions/*", 3))


def test_a_kill_in_the_last_sync_of_a_log_transaction(folder: Path) -> None:
    crash_and_go_on(World(folder, SINKS["append + log"]), Fault("before sync log/transactions/*", 3, dead=True))


# ---- crashes in a recovery ------------------------------------------------------------------------------------------


@every_sink
@pytest.mark.parametrize(("before", "fault"), cases(RECOVERY))
def test_a_start_that_breaks_is_made_again(folder: Path, before: Fault, fault: Fault, sinks: tuple[str, ...]) -> None:
    for dead in (False, True):
        world = World(folder / str(dead), sinks)
        world.live(EVENTS, before)
        broken = world.live(EVENTS, replace(fault, dead=dead))
        assert isinstance(broken.error, Crash) and not broken.completed[1:]
        world.live(MORE).survived()
        check(world, MORE)


def fallen_back(folder: Path) -> World:
    """A world with two sinks that are ahead of everything that can be read."""
    world = World(folder, SINKS["append + log"])
    world.live(EVENTS).survived()
    ruin_newest(world, RETAIN)
    return world


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


def ruin_newest(world: World, count: int) -> None:
    for path, how in zip(reversed(world.checkpoints[-count:]), 2 * HOW, strict=False):
        for copy in world.copies(int(path.name[:12])).values():
            damage(copy, how)


@every_sink
@pytest.mark.parametrize(("count", "outcome"), cases(DAMAGES))
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


@every_sink
@pytest.mark.parametrize(("by", "outcome"), cases(BEHIND))
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
    world = World(folder, SINKS["append + log"])
    behind(world, 2)
    world.live(EVENTS, Fault(f"told {step} *", dead=True))
    world.live(MORE).survived()
    check(world, MORE)


@pytest.mark.parametrize("crash", [None, Fault("told rebase *"), Fault("told rebase *", 2), Fault("told ready *")])
def test_sinks_whose_rows_came_from_a_manifest_that_is_lost(folder: Path, crash: Fault | None) -> None:
    """Checkpoint 8 is lost, 9 computes the same again, and then the sinks are brought back as 8 left them."""
    world = World(folder, SINKS["append + log"])
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


# ---- any history ----------------------------------------------------------------------------------------------------


DAMAGEABLE = ("checkpoints", "state", "outputs")


def any_history(folder: Path, seed: int, operator: str = "sums", once: bool = False) -> str:
    """Lives that break anywhere; between them files go bad, and sinks are brought back from copies. How it ended.

    `once`: only a single file goes bad in the whole history, and no sink is brought back.
    """
    rng = random.Random(seed)
    sinks = [some for some in SINKS.values() if operator == "sums" or some != ("latest",)]
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


@pytest.mark.parametrize("operator", ["sums", "draws"])
@pytest.mark.parametrize("seed", range(10))
def test_any_history_ends_right_or_is_refused(folder: Path, seed: int, operator: str) -> None:
    assert any_history(folder, seed, operator)


@pytest.mark.parametrize("seed", range(10))
def test_a_history_in_which_one_file_goes_bad_ends_right(folder: Path, seed: int) -> None:
    assert any_history(folder, seed, once=True) == "right"


# ---- the clock ------------------------------------------------------------------------------------------------------


def finish(world: World) -> None:
    """Let every timer ring."""
    world.clock.sleep(86_400)
    world.live(MORE).survived()
    check(world, MORE)


@pytest.mark.parametrize("operator", ["sums", "timers"])
@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("at", ["told plan *", "told prepare *", "told commit *"])
def test_the_clock_may_be_moved_between_two_lives(folder: Path, hours: int, operator: str, at: str) -> None:
    world = World(folder, SINKS["append + log"], operator)
    world.live(EVENTS, Fault(at, 4, dead=True))
    world.clock.sleep(3600 * hours)
    world.live(EVENTS, Fault("told complete *", 2))
    world.clock.sleep(-3600 * hours)
    world.live(EVENTS).survived()
    finish(world)


@pytest.mark.parametrize("hours", [-1, 0, 1])
@pytest.mark.parametrize("count", [1, RETAIN])
def test_timers_ring_in_the_same_epochs_when_they_are_computed_again(folder: Path, count: int, hours: int) -> None:
    world = World(folder, SINKS["append + log"], "timers")
    world.live(EVENTS).survived()
    world.clock.sleep(5)
    ruin_newest(world, count)
    world.clock.sleep(3600 * hours)
    life = world.live(MORE).survived()
    assert outcome_of(world, life, 0) is Outcome.CATCHES_UP
    finish(world)


def test_without_the_plans_that_hold_the_ticks_nothing_is_guessed(folder: Path) -> None:
    world = World(folder, SINKS["append + log"], "timers")
    world.live(EVENTS).survived()
    ruin_newest(world, 1)
    for plan in world.home.glob("checkpoints/*.plan.json"):
        damage(plan, "flipped")
    before = world.substance()
    assert world.live(MORE).code == "SW-STATE-DIVERGES"
    assert world.substance() == before, "SAFE"


# ---- full disks, bad events, other records --------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(7, 500, 29))
def test_a_disk_that_is_full_from_some_moment_on(folder: Path, number: int) -> None:
    """Whatever is to be written then; and once there is room again the job goes on."""
    world = World(folder, SINKS["append + log"])
    life = world.live(EVENTS, Fault("before [!d]*", number, OSError))
    assert isinstance(life.error, OSError | StreamworkError)
    world.live(MORE).survived()
    check(world, MORE)


POISONED = [*EVENTS[:20], Payment("card-1", -1), *EVENTS[20:]]


@every_sink
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


@pytest.mark.parametrize("point", POINTS[::2], ids=lambda point: point.name)
def test_an_event_that_is_dropped_is_dropped_once(folder: Path, point: Point) -> None:
    world = World(folder, SINKS["append + log"])
    world.on_error = "drop"
    world.live(POISONED, list(point.faults())[-1])
    world.live(POISONED).survived()
    good = [event for event in POISONED if event.amount >= 0]
    check_echo(world, good)
    check_state(world, fold(good)[1])
    check_ledgers(world)
    check_closed(world, len(POISONED))
    assert sum(m["counters"]["sums"]["dropped"] for m in line(world)) == 1


class Others(Record):
    number: str = ""
    total: int = 0


class Otherwise(KeyedOperator[Payment, Others, Seen]):
    def apply(self, event: Payment, state: Others, collector: Any) -> None:
        state.number += "1"
        collector.emit(Seen(event.card, len(state.number), 0))


@every_sink
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


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_random_results_agree_wherever_the_job_breaks(folder: Path, point: Point) -> None:
    world = World(folder, SINKS["append + log"], "draws")
    assert crash_and_go_on(world, list(point.faults())[-1], check_agreement, epochs=6) is point.outcome


@pytest.mark.parametrize(("before", "fault"), cases(RECOVERY))
def test_random_results_agree_wherever_a_start_breaks(folder: Path, before: Fault, fault: Fault) -> None:
    world = World(folder, SINKS["append + log"], "draws")
    world.live(EVENTS, before)
    world.live(EVENTS, replace(fault, dead=True))
    world.live(MORE).survived()
    check_agreement(world, MORE)


@pytest.mark.parametrize("by", [1, 2])
def test_random_results_are_given_again_to_a_sink_that_is_behind(folder: Path, by: int) -> None:
    world = World(folder, SINKS["append + log"], "draws")
    behind(world, by)
    world.live(MORE).survived()
    check_agreement(world, MORE)


@pytest.mark.parametrize("count", [1, RETAIN])
def test_random_results_are_not_computed_again_behind_a_sink_unless_somebody_accepts_that(
    folder: Path, count: int
) -> None:
    world = World(folder, SINKS["append + log"], "draws")
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


# ---- two drivers ----------------------------------------------------------------------------------------------------


def two_drivers(folder: Path, at: str) -> tuple[World, Life]:
    """The first driver stands still at some line, a second one takes over and goes to the end, then the first goes on."""
    first = World(folder, SINKS["append + log"])
    second = World(folder, SINKS["append + log"])
    second.processes.life = 2
    second.manifests = first.manifests
    second._tokens = iter(range(10**6, 10**9))

    def on_line(line: str) -> None:
        if line == at:
            first.on_line = None
            second.live(MORE).survived()

    first.on_line = on_line
    return first, first.live(MORE)


@pytest.mark.parametrize("at", [f"told {step} 3" for step in ("plan", "compute", "prepare", "complete", "prune")])
def test_a_driver_that_wakes_up_after_another_has_taken_over_does_no_harm(folder: Path, at: str) -> None:
    world, life = two_drivers(folder, at)
    assert life.code in ("SW-SINK-FENCED", "SW-DRIVER-FENCED")
    world.live(MORE).survived()
    check(world, MORE)


# ---- negative controls: without the guard, the same checkers fail ---------------------------------------------------


def failure(attempt: Callable[[], Any]) -> str:
    """What a cell of the matrix fails with; empty if it holds."""
    try:
        attempt()
    except (AssertionError, StreamworkError) as error:
        return str(error).splitlines()[0]
    return ""


def crashing(folder: Path, at: str, sinks: str = "append + log", operator: str = "sums") -> str:
    check_all = check_agreement if operator == "draws" else check
    fault = Fault(at, 3, dead=True)
    return failure(lambda: crash_and_go_on(World(folder, SINKS[sinks], operator), fault, check_all))


def catching_up(folder: Path, size: int = SLICE) -> str:
    def attempt() -> None:
        world = fallen_back(folder)
        world.slice = size
        world.live(MORE).survived()
        check(world, MORE)

    return failure(attempt)


def test_without_the_ledger_rows_come_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cell(name: str, at: str, sinks: str) -> str:
        return failure(lambda: crash_and_go_on(World(folder / name, SINKS[sinks]), Fault(at, dead=True)))

    assert cell("guarded", "told commit *", "append + log") == ""
    for connector in (sqlite, log):
        monkeypatch.setattr(connector, "settle", lambda row, entry: Verdict.APPLY)
        monkeypatch.setattr(log, "LedgerRow", lambda fence, *_: LedgerRow(fence, None, ""))
        monkeypatch.setattr(SqliteSink, "_advance", lambda *_: None)
    assert cell("a", "told commit *", "append").startswith("ECHO journal: too many")
    assert cell("b", "told commit *", "log").startswith("ECHO log: too many")
    assert cell("c", "told plan *", "append").startswith("LEDGER"), "no sink had it yet"


def test_without_fences_a_driver_that_wakes_up_does_harm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = commit_rule.judge
    unfenced = lambda row, entry: real(row, msgspec.structs.replace(entry, fence=row.fence))  # noqa: E731
    monkeypatch.setattr(commit_rule, "judge", unfenced)
    monkeypatch.setattr(Transactions, "check_fence", staticmethod(lambda sink, row, fence: None))
    monkeypatch.setattr(Fences, "check", lambda self, mine: None)

    def attempt() -> None:
        world, life = two_drivers(folder, "told prepare 3")
        life.survived()
        check(world, MORE)

    assert failure(attempt).startswith(("LEDGER", "LEFT OVER"))


def test_with_rows_and_ledger_in_two_transactions_rows_come_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crashing(folder / "guarded", "rows written to journal", "append") == ""

    def commit(self: Any, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        with self._transaction() as db:
            verdict = commit_rule.settle(self._row(db, entry.uid, entry.sink), entry)
            if verdict is Verdict.APPLY:
                SqliteSink._write(self, db, staged)
        self._world.passes("rows written to journal")
        with self._transaction() as db:
            self._advance(db, entry, entry.end if verdict is Verdict.APPLY else None)

    monkeypatch.setattr(SqliteSink, "commit", commit)
    assert crashing(folder / "a", "rows written to journal", "append").startswith("ECHO journal: too many")


def test_a_sink_behind_that_is_not_offered_what_it_lacks_has_gaps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt(name: str) -> None:
        world = World(folder / name, SINKS["append + log"])
        behind(world, 2)
        world.live(EVENTS).survived()
        check(world, EVENTS)

    assert failure(lambda: attempt("guarded")) == ""
    real = recovery.choose
    monkeypatch.setattr(recovery, "choose", lambda *found: replace(real(*found), offers=()))
    assert failure(lambda: attempt("a")).startswith("ECHO log: too many Counter(), missing")


def test_with_plans_that_reach_across_a_sink_the_job_is_stuck(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert catching_up(folder / "guarded", SLICE - 1) == ""
    monkeypatch.setattr(Route, "leg", lambda self, at: None)
    assert catching_up(folder / "capped", SLICE - 1) == ""
    monkeypatch.setattr(Route, "capped", lambda self, start, end: end)
    assert catching_up(folder / "a", SLICE - 1).startswith("SW-SINK-LEDGER")


def test_with_the_newest_checkpoint_only_a_lost_manifest_is_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (driver, recovery):
        monkeypatch.setattr(module, "kept", lambda line, retain, pinned=None: list(line[:1]))
    assert catching_up(folder).startswith("SW-CHECKPOINT-NONE")


def test_random_results_diverge_where_a_prepared_manifest_is_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crashing(folder / "guarded", "told commit *", operator="draws") == ""
    real = Store.stored
    monkeypatch.setattr(Store, "stored", lambda self: [stored for stored in real(self) if stored.completed])
    assert crashing(folder / "a", "told commit *", operator="draws").startswith("SW-STATE-DIVERGES")
    monkeypatch.setattr(recovery.Recovery, "_not_replayable", lambda self, at, position: "")
    assert crashing(folder / "b", "told commit *", operator="draws").startswith("AGREEMENT")


def _sql(statement: str) -> Callable[[World], None]:
    def tamper(world: World) -> None:
        with closing(sqlite3.connect(world.database)) as db, db:
            db.execute(statement)

    return tamper


def _miscount(world: World) -> None:
    for manifest in world.manifests.values():
        if manifest["epoch"] == 2:
            manifest["counters"]["sums"]["processed"] += 1


def _rewrite_state(world: World) -> None:
    path = world.home / world.newest()[0]["components"]["sums"]["0"][-1]["path"]
    old = pq.read_table(path)
    pq.write_table(old.set_column(2, "total", pa.compute.add(old["total"], 1)), path)


TAMPERING = [
    ("a row twice", _sql("INSERT INTO journal SELECT * FROM journal LIMIT 1"), "ECHO journal: too many"),
    ("a row less", _sql("DELETE FROM journal WHERE rowid = 7"), "ECHO journal: too many Counter[(][)], missing"),
    ("a wrong sum", _sql("UPDATE journal SET total = total + 1 WHERE rowid = 7"), "ECHO journal"),
    ("another order", _sql("UPDATE journal SET rowid = 1000 WHERE rowid = 1"), "SEQUENCE journal"),
    ("a ledger of another manifest", _sql("UPDATE streamwork_ledger SET manifest_sha256 = 'x'"), "LEDGER journal"),
    ("a ledger elsewhere", _sql("UPDATE streamwork_ledger SET position = '{}'"), "LEDGER journal"),
    ("a wrong record", _rewrite_state, "STATE"),
    ("a wrong count", _miscount, "CLOSED sums, epoch 2"),
    ("a file too many", lambda world: (world.home / "outputs/journal/9.arrow").touch(), "LEFT OVER: .'outputs"),
    ("a manifest too many", lambda world: damage_number(world), "LEFT OVER: prepared"),
]


def damage_number(world: World) -> None:
    shutil.copy(world.copies(8)["prepared"], world.copies(2)["prepared"])


@pytest.mark.parametrize(("tamper", "complaint"), cases(TAMPERING))
def test_every_checker_can_fail(folder: Path, tamper: Callable[[World], None], complaint: str) -> None:
    world = World(folder)
    world.live(EVENTS).survived()
    check(world, EVENTS)
    tamper(world)
    with pytest.raises(AssertionError, match=complaint):
        check(world, EVENTS)


def test_the_matrix_can_be_printed() -> None:
    lines = table().splitlines()
    assert len({text.count("|") for text in lines}) == 1
    assert len(lines) == 2 + len(POINTS) + len(RECOVERY) + len(DAMAGES) + len(BEHIND) + len(OTHER)
