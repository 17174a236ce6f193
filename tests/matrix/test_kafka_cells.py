"""The fault matrix with Kafka on both sides: where a life breaks, and what the next one does about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crashes import Crash
from matrix.faults import Fault
from matrix.kafka_world import KafkaWorld
from matrix.oracles import check
from matrix.points import AT_ONCE_POINTS, DAMAGES, POINTS, RECOVERY, Outcome, Point, outcome_of
from matrix.promises import EVENTS as ECHOES
from matrix.promises import PROMISES, break_and_go_on, check_promise
from matrix.stories import crash_and_go_on, ruin_newest
from matrix.world import EVENTS, MORE, SLICE
from streamwork.connectors.kafka.feed import feeds
from streamwork.connectors.kafka.ledger import SUFFIX
from streamwork.connectors.kafka.outbox import Outbox

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_chains")]


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    feeds.close()


def touches_kafka(point: Point) -> bool:
    """What happens to old files is tried with other sinks."""
    return point.only(("topic",)) and not point.name.startswith(("compaction", "retention", "disk full"))


@pytest.mark.parametrize("point", list(filter(touches_kafka, POINTS)), ids=lambda point: point.name)
@pytest.mark.proves("Kafka on both sides, any point")
def test_a_job_from_topic_to_topic_that_breaks_ends_with_the_same_results(folder: Path, point: Point) -> None:
    _, late = point.faults()
    assert crash_and_go_on(KafkaWorld(folder), late, epochs=5) is point.outcome


@pytest.mark.parametrize(("before", "fault"), [one[1:] for one in RECOVERY[:5]], ids=[one[0] for one in RECOVERY[:5]])
def test_a_start_that_breaks_is_made_again(folder: Path, before: Fault, fault: Fault) -> None:
    world = KafkaWorld(folder)
    world.live(EVENTS[: 5 * SLICE], before)
    broken = world.live(EVENTS[: 5 * SLICE], replace(fault, dead=True))
    assert isinstance(broken.error, Crash) and not broken.completed[1:]
    world.live(EVENTS[: 6 * SLICE]).survived()
    check(world, EVENTS[: 6 * SLICE])


@pytest.mark.parametrize(("count", "outcome"), [one[1:] for one in DAMAGES], ids=[one[0] for one in DAMAGES])
def test_without_the_newest_manifests_a_job_falls_back(folder: Path, count: int, outcome: Outcome) -> None:
    world = KafkaWorld(folder)
    world.live(EVENTS).survived()
    ruin_newest(world, count)
    life = world.live(MORE)
    assert outcome_of(world, life, 0) is outcome
    if life.error is None:
        check(world, MORE)


def _at_once() -> list[tuple[Point, str]]:
    near = ("after plan", "after a claim", "mid write", "after a write", "after prepared")
    points = [point for point in AT_ONCE_POINTS if point.name.startswith(near) and point.only(("topic",))]
    return [
        (point, promise)
        for promise, (semantics, _) in PROMISES.items()
        for point in points
        if semantics in (point.semantics or semantics)
    ]


@pytest.mark.parametrize(("point", "promise"), _at_once(), ids=lambda one: one if isinstance(one, str) else one.name)
@pytest.mark.proves("Kafka on both sides, any point: rows written at once")
def test_a_job_that_writes_at_once_keeps_its_promise(folder: Path, point: Point, promise: str) -> None:
    semantics, tracking = PROMISES[promise]
    world = KafkaWorld(folder, "echo", semantics, tracking)
    wanted = point.outcome
    if wanted is Outcome.COMPUTES_AGAIN and semantics == "at-most-once":
        wanted = Outcome.LEAVES_OUT
    fault = replace(point.fault, nth=point.fault.nth + point.fault.at.startswith("told"), dead=True)
    events = ECHOES[: 4 * SLICE]
    assert break_and_go_on(world, fault, 3, events) is wanted
    check_promise(world, events, at_no_cost=wanted in (Outcome.GOES_ON, Outcome.ROLLS_FORWARD))


@pytest.mark.proves("the ledger record, in Kafka")
def test_without_the_ledger_record_rows_come_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the rows of the fourth epoch are committed without it, and the life breaks before the epoch is completed."""
    point = next(one for one in POINTS if one.name == "after the last sink, before completed")
    send = Outbox.send
    left_out: list[str] = []

    def rows_only(self: Outbox, topic: str, messages: Any) -> None:
        if topic.endswith(SUFFIX) and not left_out and b'"payments/0":%d}' % (4 * SLICE) in messages[0]["value"]:
            left_out.append(topic)
        else:
            send(self, topic, messages)

    monkeypatch.setattr(Outbox, "send", rows_only)
    _, late = point.faults()
    with pytest.raises(AssertionError, match=r"ECHO topic: too many Counter\(\{"):
        crash_and_go_on(KafkaWorld(folder), late, epochs=5)
    assert left_out
