"""Negative controls of at-most-once and at-least-once: without the guard, the same checkers fail."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from matrix.faults import Fault
from matrix.oracles import check_at_least_once, check_at_most_once, echoed, line
from matrix.promises import EVENTS, break_and_go_on, check_promise, world_of
from matrix.stories import Retrying, TaskLost, Twice, cases, failure, two_drivers
from matrix.world import SLICE, World
from streamwork.components.position import Position
from streamwork.delivery import Acknowledger, Inbox
from streamwork.engine.instance import Instance
from streamwork.engine.steps.sink_steps import WriteStep
from streamwork.epoch.fences import Fences
from streamwork.epoch.recovery.recovery import Recovery
from streamwork.epoch.store import Store

pytestmark = pytest.mark.usefixtures("short_chains")


def crashing(folder: Path, promise: str, at: str, nth: int = 2) -> str:
    def attempt() -> None:
        world = world_of(folder, promise)
        break_and_go_on(world, Fault(at, nth, dead=True), 4)
        check_promise(world)

    return failure(attempt)


@pytest.mark.proves("the planned offset, not the stored one")
def test_with_the_stored_offset_instead_of_the_planned_one_rows_come_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crashing(folder / "guarded", "at-most-once", "has written *") == ""
    monkeypatch.setattr(Recovery, "planned_beyond", lambda self, at: Position())
    assert crashing(folder / "a", "at-most-once", "has written *").startswith("AT-MOST-ONCE journal: twice")


@pytest.mark.proves("the plan before compute")
def test_with_the_plan_after_compute_rows_come_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows then, after a crash, what may have been written."""
    planned: list[Any] = []
    write_plan, write_prepared = Store.write_plan, Store.write_prepared

    def prepared(self: Store, manifest: Any) -> None:
        write_plan(self, planned.pop())
        write_prepared(self, manifest)

    monkeypatch.setattr(Store, "write_plan", lambda self, plan: planned.append(plan))
    monkeypatch.setattr(Store, "write_prepared", prepared)
    monkeypatch.setattr(Instance, "_claim", lambda self, sink: True)  # a claim asks for the plan, which is not there
    assert crashing(folder, "at-most-once", "has written *").startswith("AT-MOST-ONCE journal: twice")


@pytest.mark.parametrize("host", [Twice, Retrying])
@pytest.mark.proves("claims")
def test_without_claims_a_task_that_is_run_again_writes_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, host: type[Twice]
) -> None:
    def attempt(name: str) -> None:
        world = world_of(folder / name, "at-most-once")
        world.host = host
        world.live(EVENTS, Fault("has written *", 3, TaskLost) if host is Retrying else None).survived()
        check_at_most_once(world, EVENTS)

    assert failure(lambda: attempt("guarded")) == ""
    monkeypatch.setattr(Instance, "_claim", lambda self, sink: True)
    assert failure(lambda: attempt("a")).startswith("AT-MOST-ONCE journal: twice")


@pytest.mark.parametrize("promise", ["at-most-once", "at-least-once"])
@pytest.mark.proves("a check of the fence after a plan")
def test_without_a_look_at_the_fence_behind_a_plan_a_driver_that_wakes_up_writes_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, promise: str
) -> None:
    def attempt(name: str) -> None:
        world, _ = two_drivers(world_of(folder / name, promise), "told prune 2", EVENTS)
        (check_at_most_once if promise == "at-most-once" else check_at_least_once)(world, EVENTS)

    assert failure(lambda: attempt("guarded")) == ""
    monkeypatch.setattr(Fences, "check", lambda self, mine: None)
    assert failure(lambda: attempt("a")).startswith("AT-")


@pytest.mark.parametrize("promise", ["at-least-once", "acknowledging"])
@pytest.mark.proves("outputs before offsets")
def test_with_offsets_that_are_stored_before_the_outputs_rows_are_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, promise: str
) -> None:
    """Each epoch writes what the one before it made: a crash between two of them loses it."""
    assert crashing(folder / "guarded", promise, "told complete *") == ""
    real = WriteStep.drain
    held: dict[Any, Any] = {}

    def drain(self: WriteStep) -> Any:
        mine = self._waiting, self._count
        self._waiting, self._count = held.get(id(self), ([], 0))
        held[id(self)] = mine
        return real(self)

    monkeypatch.setattr(WriteStep, "drain", drain)
    assert crashing(folder / "a", promise, "told complete *").startswith("AT-LEAST-ONCE journal")


def failing_once(folder: Path, fault: Fault | None = None) -> str:
    def attempt() -> None:
        world = world_of(folder, "acknowledging")
        world.flaky[7] = 1
        if fault is not None:
            world.live(EVENTS, fault)
        world.live(EVENTS).survived()
        check_at_least_once(world, EVENTS)

    return failure(attempt)


@pytest.mark.proves("the list of failed events")
def test_without_the_events_that_failed_some_are_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing_once(folder / "guarded") == ""
    settle = Acknowledger.resolve
    monkeypatch.setattr(Acknowledger, "resolve", lambda *given: msgspec.structs.replace(settle(*given), waiting=()))
    assert failing_once(folder / "a").startswith("AT-LEAST-ONCE journal: [7] is missing")


@pytest.mark.proves("restoring the waiting events after a restart")
def test_without_the_stored_ones_a_restart_forgets_what_failed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = Fault("told prune 2", dead=True)
    assert failing_once(folder / "guarded", crash) == ""
    monkeypatch.setattr(Inbox, "read_waiting", lambda self, refs: [])
    assert failing_once(folder / "a", crash).startswith("AT-LEAST-ONCE journal: [7] is missing")


# ---- the checkers themselves ----------------------------------------------------------------------------------------


def _sql(statement: str) -> Callable[[World], None]:
    def tamper(world: World) -> None:
        with closing(sqlite3.connect(world.database)) as db, db:
            db.execute(statement)

    return tamper


def _miscount(world: World) -> None:
    next(line(world))["counters"]["sums"]["processed"] += 1


TAMPERING = [
    ("a row twice", _sql("INSERT INTO journal SELECT * FROM journal WHERE total = 3"), "twice .3.|.3. came again"),
    ("a row less", _sql("DELETE FROM journal WHERE total = 3"), ".3. is missing"),
    ("a row from nowhere", _sql("INSERT INTO journal VALUES ('card-1', 1, 999)"), ".999. was never there"),
    ("a wrong count", _miscount, "CLOSED sums"),
]


@pytest.mark.parametrize("promise", ["at-most-once", "at-least-once", "acknowledging"])
@pytest.mark.parametrize(("tamper", "complaint"), cases(TAMPERING))
def test_every_checker_can_fail(folder: Path, tamper: Callable[[World], None], complaint: str, promise: str) -> None:
    world = world_of(folder, promise)
    world.live(EVENTS).survived()
    check_promise(world)
    tamper(world)
    with pytest.raises(AssertionError, match=complaint):
        check_promise(world)


def test_a_keyed_table_shows_what_is_missing(folder: Path) -> None:
    world = world_of(folder, "at-least-once", ("latest",))
    world.live(EVENTS[: 7 * SLICE]).survived()
    with pytest.raises(AssertionError, match="AT-LEAST-ONCE latest: .* is missing"):
        check_at_least_once(world, echoed(8 * SLICE))
