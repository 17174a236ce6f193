"""Windows and a join under at-most-once and at-least-once: what a failure costs, wherever it strikes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from matrix.faults import Fault
from matrix.oracles import dropped
from matrix.promises import PROMISES
from matrix.stories import cases, failure
from matrix.timed_world import EVENTS, OPERATORS, TimedWorld, check_timed
from matrix.world import SLICE
from streamwork.components.position import Position
from streamwork.engine.fired import Fired
from streamwork.engine.steps.sink_steps import WriteStep
from streamwork.epoch.recovery.recovery import Recovery
from tiers import pairs, quick_few

pytestmark = pytest.mark.usefixtures("short_chains")
FREE = ("told prepare *", "told complete *")
POINTS = (
    "told plan *",
    "half read *",
    "about to write *",
    "has written *",
    "after create state/*.delta.parquet",
    "told report *",
    *FREE,
)
CELLS = quick_few(
    [(promise, operator, at) for promise in PROMISES for operator in OPERATORS for at in POINTS],
    lambda cell: pairs(*cell),
    name="-".join,
    values=lambda cell: cell,
)
every_promise = pytest.mark.parametrize("promise", PROMISES)
every_operator = pytest.mark.parametrize("operator", OPERATORS)


def broken(folder: Path, promise: str, operator: str, at: str) -> tuple[TimedWorld, int]:
    """A life that breaks, and one that does not and has more input; what the failure has cost."""
    world = TimedWorld(folder, promise, operator)
    assert world.live(EVENTS[: 5 * SLICE], Fault(at, 4, dead=True)).error is not None
    world.live(EVENTS).survived()
    return world, check_timed(world, at_no_cost=at in FREE)


@pytest.mark.parametrize(("promise", "operator", "at"), CELLS)
@pytest.mark.proves("results of windows, joins and timers, at any point")
def test_a_job_that_breaks_keeps_its_promise(folder: Path, promise: str, operator: str, at: str) -> None:
    world, cost = broken(folder, promise, operator, at)
    assert world.in_doubt or at == "told complete *"
    assert not cost or at not in FREE


@every_promise
@every_operator
def test_without_a_failure_it_costs_nothing(folder: Path, promise: str, operator: str) -> None:
    world = TimedWorld(folder, promise, operator)
    world.live(EVENTS).survived()
    assert check_timed(world, at_no_cost=True) == 0
    assert any(name == "late" for name, _, _ in world.rows("journal")), "some events are late"


@every_promise
@every_operator
def test_a_failure_costs_something_somewhere(folder: Path, promise: str, operator: str) -> None:
    """Or the checks would have had nothing to allow for."""
    assert any(
        broken(folder / str(n), promise, operator, at)[1] for n, at in enumerate(("told plan *", "has written *"))
    )


def ringing(folder: Path) -> TimedWorld:
    """Timers that came due in an epoch that broke off when it had written."""
    world = TimedWorld(folder, "at-most-once", "timers")
    world.live(EVENTS[: 5 * SLICE], Fault("told report *", 4, dead=True))
    world.live(EVENTS).survived()
    rows = world.rows("journal")
    assert len(set(rows)) == len(rows), "AT-MOST-ONCE: a timer has come twice"
    return world


def test_a_timer_comes_at_most_once(folder: Path) -> None:
    assert dropped(ringing(folder)) > 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"parallelism": "x"}'])
def test_a_damaged_record_of_what_was_due_is_refused(folder: Path, content: bytes) -> None:
    world = TimedWorld(folder, "at-most-once", "window")
    world.live(EVENTS[: 5 * SLICE], Fault("told report *", 4, dead=True))
    for path in world.home.glob("claims/*-sums-*.json"):
        path.write_bytes(content)
    assert world.live(EVENTS).code == "SW-CLAIM-DAMAGED"


# ---- negative controls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["each event", "join"])
def test_with_the_stored_offset_instead_of_the_planned_one_rows_come_twice(
    folder: Path, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recovery, "planned_beyond", lambda self, at: Position())
    complaint = failure(lambda: broken(folder, "at-most-once", operator, "told report *"))
    assert complaint.startswith("AT-MOST-ONCE: twice")


@pytest.mark.proves("a record of what was due by time")
def test_without_the_record_of_what_was_due_results_come_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fired, "lost", lambda *_: {})
    complaint = failure(lambda: broken(folder / "window", "at-most-once", "window", "told report *"))
    assert complaint.startswith("AT-MOST-ONCE: twice")
    assert failure(lambda: ringing(folder / "timers")).startswith("AT-MOST-ONCE: a timer has come twice")


@pytest.mark.parametrize("promise", ["at-least-once", "acknowledging"])
@every_operator
def test_with_offsets_that_are_stored_before_the_outputs_rows_are_missing(
    folder: Path, promise: str, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epoch writes what the one before it made: a crash between two of them loses it."""
    real, held = WriteStep.drain, dict[int, Any]()

    def drain(self: WriteStep) -> Any:
        mine = self._waiting, self._count
        self._waiting, self._count = held.get(id(self), ([], 0))
        held[id(self)] = mine
        return real(self)

    monkeypatch.setattr(WriteStep, "drain", drain)
    complaint = failure(lambda: broken(folder, promise, operator, "told complete *"))
    assert complaint.startswith("AT-LEAST-ONCE") and complaint.endswith("is missing")


def _sql(statement: str) -> Callable[[TimedWorld], None]:
    def tamper(world: TimedWorld) -> None:
        with closing(sqlite3.connect(world.database)) as db, db:
            db.execute(statement)

    return tamper


TAMPERING = [
    ("a row twice", _sql("INSERT INTO journal SELECT * FROM journal WHERE total = 14"), "twice|came again"),
    ("a row less", _sql("DELETE FROM journal WHERE total = 14"), "is missing"),
    ("a row from nowhere", _sql("INSERT INTO journal VALUES ('card-1 from 4', 1, 5)"), "is wrong|is in two results"),
]


@every_promise
@every_operator
@pytest.mark.parametrize(("tamper", "complaint"), cases(TAMPERING))
def test_every_checker_can_fail(folder: Path, promise: str, operator: str, tamper: Any, complaint: str) -> None:
    world = TimedWorld(folder, promise, operator)
    world.live(EVENTS).survived()
    tamper(world)
    with pytest.raises(AssertionError, match=complaint):
        check_timed(world, at_no_cost=True)
