"""Small stories that must come out exactly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from contract_jobs import Alert, Averaging, Reading, Splitting
from sample import Payment, Summing, payments
from streamwork import Job, ListSource, SqliteSink
from streamwork.engine.channel import Aligned, Channel, CheckpointEvent, Data
from streamwork.engine.dispatcher import Dispatcher
from streamwork.job import Input
from streamwork.testing import Crash, Lose, Pause, run

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
    assert "life 2: resumed at 1" in result.story
    assert result.states == undisturbed.states
    assert result.outputs == undisturbed.outputs
    assert {card: record.number for card, record in result.states["sums"].items()} == {"a": 2, "b": 2, "c": 2}  # type: ignore[attr-defined]


def test_two_inputs_and_a_checkpoint_event_that_comes_early_on_one() -> None:
    """201 is behind the checkpoint event and waits; 200 on the other input is before it and is processed first."""
    left, right = Channel("left"), Channel("right")
    dispatcher = Dispatcher([left, right])

    def data(number: int) -> Data:
        return Data(1, Input("numbers"), "next", [number])

    left.send(CheckpointEvent(1, "l"))
    left.send(data(201))
    assert dispatcher.take(left) is None, "it has come on one input only"
    assert dispatcher.ready() == [], "the early input is blocked, the other has nothing yet"
    right.send(data(200))
    right.send(CheckpointEvent(1, "r"))
    assert dispatcher.ready() == [right]
    assert dispatcher.take(right) == data(200)
    assert dispatcher.take(right) == Aligned(1, ("l", "r")), "the state is stored between 200 and 201"
    assert dispatcher.ready() == [left]
    assert dispatcher.take(left) == data(201)


def test_without_alignment_201_would_be_in_the_checkpoint() -> None:
    left, right = Channel("left"), Channel("right")
    dispatcher = Dispatcher([left, right], align=False)
    left.send(CheckpointEvent(1, "l"))
    left.send(Data(2, Input("numbers"), "next", [201]))
    assert dispatcher.take(left) is None
    assert dispatcher.ready() == [left], "201 could be processed before the state is stored"


def test_a_checkpoint_counts_for_nothing_before_all_instances_of_all_components_have_reported() -> None:
    """Whatever the machine dies at before that, the next life builds on the checkpoint before."""
    job = Job("reports", parallelism=3)
    job.source(ListSource([], Payment), id="in").apply(Summing(), key="card", id="sums").sink(NONE, id="out")
    steps = run(job, {"in": payments(10)}, epoch_events=5).steps
    for step in range(1, steps + 1):
        result = run(job, {"in": payments(10)}, crash_at=step, epoch_events=5)
        at = next(i for i, line in enumerate(result.story) if line.startswith("life 2"))
        prepared = [line for line in result.story[:at] if line.startswith("prepare ")]
        usable = prepared[-1].removeprefix("prepare ") if prepared else "0"
        assert result.story[at] == f"life 2: resumed at {usable}"


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
