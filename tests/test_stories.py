"""Small stories that must come out exactly."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from contract_jobs import Alert, Averaging, Reading, Splitting
from crashes import Crash as Died
from crashes import CrashAt
from sample import Payment, Seen, Summing, Sums, payments, run_job
from streamwork import CallableSink, Event, Job, KeyedOperator, ListSource, Operator, SqliteSink, WrongUse
from streamwork.epoch import Phase
from streamwork.flow.batch import Batch
from streamwork.flow.channel import Aligned, Channel, CheckpointEvent, Data, Part
from streamwork.flow.dispatcher import Dispatcher
from streamwork.job import Input
from streamwork.testing import Crash, Lose, Pause, run
from usage_example import WRITERS, Scene, Transaction, build, transaction

NONE = SqliteSink("never-opened.db", "t")


def test_after_a_failure_right_behind_a_checkpoint_exactly_the_events_behind_it_are_replayed() -> None:
    """Records a, b, c with counts; a checkpoint completes; a failure right after it."""
    job = Job("counts")
    job.source(ListSource([], Payment), id="in").apply(Summing(), key="card", id="sums").sink(NONE, id="out")
    before = [Payment("a", 1), Payment("b", 1), Payment("c", 1), Payment("a", 1)]
    behind = [Payment("b", 1), Payment("c", 1)]
    result = run(job, {"in": [*before, Crash(), *behind]}, epoch_events=4)
    undisturbed = run(job, {"in": [*before, *behind]}, epoch_events=4)
    assert result.lives == 2
    assert "start 2: resumed at 1" in result.story
    assert result.states == undisturbed.states
    assert result.outputs == undisturbed.outputs
    assert {card: record.number for card, record in result.states["sums"].items()} == {"a": 2, "b": 2, "c": 2}  # type: ignore[attr-defined]


def test_two_inputs_and_a_checkpoint_event_that_comes_early_on_one() -> None:
    """201 is behind the checkpoint event and waits; 200 on the other input is before it and is processed first."""
    left, right = Channel("left"), Channel("right")
    dispatcher = Dispatcher([left, right])

    early, late = (Data(1, (Part(Input("numbers"), "next", Batch([number])),)) for number in (200, 201))
    left.send(CheckpointEvent(1, "l"))
    left.send(late)
    assert dispatcher.receive(left) is None, "it has come on one input only"
    assert dispatcher.ready() == [], "the early input is blocked, the other has nothing yet"
    right.send(early)
    right.send(CheckpointEvent(1, "r"))
    assert dispatcher.ready() == [right]
    assert dispatcher.receive(right) is early
    assert dispatcher.receive(right) == Aligned(1, ("l", "r")), "the state is stored between 200 and 201"
    assert dispatcher.ready() == [left]
    assert dispatcher.receive(left) is late


def test_without_alignment_201_would_be_in_the_checkpoint() -> None:
    left, right = Channel("left"), Channel("right")
    dispatcher = Dispatcher([left, right], align=False)
    left.send(CheckpointEvent(1, "l"))
    left.send(Data(2, (Part(Input("numbers"), "next", Batch([201])),)))
    assert dispatcher.receive(left) is None
    assert dispatcher.ready() == [left], "201 could be processed before the state is stored"


def test_a_checkpoint_counts_for_nothing_before_all_instances_of_all_components_have_reported() -> None:
    """Whatever the machine dies at before that, the next life builds on the checkpoint before."""
    job = Job("reports", parallelism=3)
    job.source(ListSource([], Payment), id="in").apply(Summing(), key="card", id="sums").sink(NONE, id="out")
    steps = run(job, {"in": payments(10)}, epoch_events=5).steps
    for step in range(1, steps + 1):
        result = run(job, {"in": payments(10)}, crash_at=step, epoch_events=5)
        at = next(i for i, line in enumerate(result.story) if line.startswith("start 2"))
        prepared = [line for line in result.story[:at] if line.startswith("prepare ")]
        usable = prepared[-1].removeprefix("prepare ") if prepared else "0"
        assert result.story[at] == f"start 2: resumed at {usable}"


def readings(*values: tuple[str, int]) -> list[Any]:
    return [Reading(sensor, value, datetime(2026, 1, 1, tzinfo=UTC)) for sensor, value in values]


def test_a_reading_above_90_degrees_raises_an_alert() -> None:
    """The stateless job."""
    job = Job("alerts")
    job.source(ListSource([], Reading), id="in").apply(Splitting()).channel("hot").sink(NONE, id="alerts")
    result = run(job, {"in": readings(("boiler", 88), ("boiler", 91), ("roof", 90), ("roof", 120))})
    assert result.outputs["alerts"] == [Alert("boiler", 91), Alert("roof", 120)]


def test_the_running_average_per_sensor() -> None:
    """The stateful job."""
    job = Job("averages")
    job.source(ListSource([], Reading), id="in").apply(Averaging(), key="sensor", id="averages").sink(NONE, id="out")
    result = run(job, {"in": [*readings(("a", 10), ("b", 5)), Crash(), *readings(("a", 20), ("a", 60))]})
    assert [(row.sensor, row.average) for row in result.outputs["out"]] == [("a", 10), ("b", 5), ("a", 15), ("a", 30)]


@pytest.mark.parametrize("fault", [Pause(60), Lose()], ids=["too slow", "instance lost"])
def test_a_checkpoint_that_takes_too_long_or_loses_an_instance_is_abandoned_and_the_next_one_works(fault: Any) -> None:
    job = Job("slow", checkpoint_timeout="10s", parallelism=2)
    job.source(ListSource([], Payment), id="in").apply(Summing(), key="card", id="sums").sink(NONE, id="out")
    events = payments(12)
    result = run(job, {"in": [*events[:5], fault, *events[5:]]}, epoch_events=4)
    assert "abandon 2" in result.story
    assert 2 not in result.checkpoints, "its number is spent"
    undisturbed = run(job, {"in": events}, epoch_events=4)
    assert result.states == undisturbed.states
    assert sorted(map(repr, result.outputs["out"])) == sorted(map(repr, undisturbed.outputs["out"]))
    assert result.lives == 1


class Account(Event):
    owner: str
    amount: int


class Ledger:
    """An outside system with two doors: one sets a balance, which is idempotent, one charges an amount, which is not."""

    def __init__(self) -> None:
        self.balances: dict[str, int] = {}

    def set_balance(self, row: Account) -> None:
        self.balances[row.owner] = row.amount

    def charge(self, row: Account) -> None:
        self.balances[row.owner] = self.balances.get(row.owner, 0) - row.amount


def test_setting_a_balance_twice_is_harmless_and_charging_twice_is_not(tmp_path: Path) -> None:
    """The same job with an upserting and with an incrementing sink under at-least-once, and a crash after the write."""

    def after_a_crash(door: str) -> dict[str, int]:
        ledger = Ledger()
        job = Job(door.replace("_", "-"), semantics="at-least-once", checkpoint_every=0)
        rows = job.source(ListSource([Account("ann", 100 if door == "set_balance" else 10)], Account), id="in")
        rows.sink(CallableSink(getattr(ledger, door)), id="out")
        with pytest.raises(Died):
            run_job(job, tmp_path / door, watcher=CrashAt(0, Phase.COMPUTE))
        run_job(job, tmp_path / door)
        return ledger.balances

    assert after_a_crash("set_balance") == {"ann": 100}
    assert after_a_crash("charge") == {"ann": -20}, "charged twice: that is what at-least-once means"


def test_an_invalid_transaction_ends_its_journey_at_the_analyser_and_is_acknowledged(tmp_path: Path) -> None:
    """Nothing is replayed, and nothing waits. The job is that of examples/system_usage."""
    scene = Scene(tmp_path)
    scene.judge(range(3))
    valid, invalid = transaction(1), Transaction("t2", "c1", "m1", 0.0, 0.0, -5.0, datetime(2026, 1, 1, tzinfo=UTC))
    tracked = {"semantics": "at-least-once", "tracking": "acknowledge"}
    job = build(scene.log, scene.decisions, NONE, look_up="events", **tracked)
    result = run(job, {"transactions": [transaction(0), invalid, valid]}, epoch_events=3)
    assert [row.transaction for row in result.outputs["usage"]] == ["t0", "t1"]
    counted = result.counts["analyser"]
    assert (counted["processed"], counted["delivered"], counted["ended_early"]) == (3, 2, 1)
    assert (counted["failed"], counted["replayed"], result.letters) == (0, 0, [])


@pytest.mark.parametrize(("door", "found"), [("upsert", (20, 3, 0)), ("increment", (30, 5, 0))])
def test_setting_the_usage_twice_is_harmless_and_adding_to_it_twice_is_not(
    tmp_path: Path, door: str, found: tuple[int, int, int]
) -> None:
    """`set_balance` and `charge` once more, with two writers of one SQLite table: 10 of 20 transactions are written twice."""
    scene, database = Scene(tmp_path), tmp_path / "usage.db"
    scene.add(range(20))
    settings = {"semantics": "at-least-once", "checkpoint_every": 0, "max_events": 10}
    job = build(scene.log, scene.decisions, WRITERS[door](database), **settings)
    with pytest.raises(Died):
        run_job(job, tmp_path / "root", watcher=CrashAt(0, Phase.COMPUTE))
    run_job(job, tmp_path / "root")
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("SELECT transactions, fraudulent, unknown FROM usage").fetchall() == [found]


def test_charging_exactly_once_is_refused_where_it_cannot_hold() -> None:
    job = Job("charges")
    job.source(ListSource([], Account), id="in").sink(CallableSink(Ledger().charge), id="out")
    with pytest.raises(WrongUse, match="(?s)SW-JOB-SEMANTICS.*'out'.*keeps no ledger.*at-least-once"):
        job.graph()


def test_a_failed_lookup_was_processed_once_and_delivered_never() -> None:
    """Times processed and times delivered are not the same."""

    class LookUp(Operator[Payment, Payment]):
        def apply(self, event: Payment, collector: Any) -> None:
            if event.card == "unknown":
                raise LookupError(event.card)
            collector.emit(event)

    job = Job("look-up", semantics="at-most-once")
    job.source(ListSource([], Payment), id="in").apply(LookUp(), id="look-up").sink(NONE, id="out")
    result = run(job, {"in": [Payment("a", 1), Payment("unknown", 2), Payment("b", 3)]})
    assert [row.card for row in result.outputs["out"]] == ["a", "b"]
    counted = result.counts["look-up"]
    assert (counted["processed"], counted["delivered"], counted["dropped"]) == (3, 2, 1)


def test_a_random_operator_and_exactly_once() -> None:
    """What was prepared is rolled forward and not computed again: state and rows always tell the same."""

    class Dice(KeyedOperator[Payment, Sums, Seen]):
        deterministic = False
        thrown: ClassVar[list[int]] = []

        def apply(self, event: Payment, state: Sums, collector: Any) -> None:
            self.thrown.append(random.randrange(10**9))
            state.number += 1
            state.total += self.thrown[-1]
            collector.emit(Seen(event.card, state.number, state.total))

    job = Job("dice")
    job.source(ListSource([], Payment), id="in").apply(Dice(), key="card", id="dice").sink(NONE, id="out")
    events = payments(12, cards=2)
    again = 0
    for step in range(1, run(job, {"in": events}, epoch_events=4).steps + 1):
        Dice.thrown.clear()
        result = run(job, {"in": events}, crash_at=step, epoch_events=4)
        again += len(Dice.thrown) > len(events)
        last = {row.card: row for row in result.outputs["out"]}
        assert len(result.outputs["out"]) == len(events)
        assert {card: (row.number, row.total) for card, row in last.items()} == {
            card: (record.number, record.total)  # type: ignore[attr-defined]
            for card, record in result.states["dice"].items()
        }
    assert again, "some crashes made it throw again, or nothing was tested"
