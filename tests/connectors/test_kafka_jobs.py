"""Whole jobs from Kafka to Kafka. What a `read_committed` consumer finds is compared with the input."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from gangs import GangRun, end_gangs
from kafka_broker.reading import committed_records, create_topic, delete_topic, ends, wait_for_markers
from kafka_broker.server import KafkaServer
from sample import Payment, Seen, Summing, expected_journal, run_job
from servers import kafka  # noqa: F401  (fixture)
from streamwork import Event, Fixed, Job, KafkaSink, KafkaSource, Refused, count, sum_of
from streamwork.components.columns import Columns
from streamwork.connectors.kafka import source as source_module
from streamwork.connectors.kafka.feed import feeds
from waiting import wait_for

pytestmark = pytest.mark.slow
_numbers = itertools.count()


class Topics:
    def __init__(self, server: KafkaServer) -> None:
        number = next(_numbers)
        self.server, self.given, self.made = server, f"given-{number}", f"made-{number}"
        create_topic(server.address, self.given, 2)
        self.events: list[Payment] = []

    def feed(self, count: int, transactional: bool = False) -> None:
        """By card, so that the events of a card keep their order."""
        settings = {"transactional.id": self.given} if transactional else {}
        producer = Producer({"bootstrap.servers": self.server.address, "log_level": 0, "linger.ms": 5, **settings})
        if transactional:
            producer.init_transactions(60)
            producer.begin_transaction()
        for _ in range(count):
            event = Payment(f"card-{len(self.events) * 31 % 7}", len(self.events))
            producer.produce(self.given, json.dumps({"card": event.card, "amount": event.amount}), key=event.card)
            self.events.append(event)
        if transactional:
            producer.commit_transaction(60)
        assert producer.flush(60) == 0
        if transactional:
            wait_for_markers(self.server.address, self.given)

    def job(self, semantics: str = "exactly-once", max_events: int = 40, **options: object) -> Job:
        job = Job("kafka", semantics=semantics, checkpoint_every=0, parallelism=2, **options)  # type: ignore[arg-type]
        source = KafkaSource(self.server.address, self.given, Payment, max_events=max_events)
        seen = job.source(source, id="payments").apply(Summing(), key="card", id="sums")
        seen.sink(KafkaSink(self.server.address, self.made, key="card", partitions=2), id="made")
        return job

    def rows(self) -> Counter[Seen]:
        found = committed_records(self.server.address, self.made)
        return Counter(msgspec.json.decode(one.value(), type=Seen) for one in found)

    def expected(self) -> Counter[Seen]:
        return Counter(Seen(*row) for row in expected_journal(self.events))


@pytest.fixture
def topics(kafka: KafkaServer) -> Iterator[Topics]:  # noqa: F811
    yield Topics(kafka)
    end_gangs()
    feeds.close()


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once", "at-most-once"])
def test_a_job_that_is_stopped_and_started_writes_every_event_once(
    topics: Topics, tmp_path: Path, semantics: str
) -> None:
    for transactional in (False, True):
        topics.feed(100, transactional)
        outcome = run_job(topics.job(semantics), tmp_path / "root")
        assert outcome.events == 100
    assert topics.rows() == topics.expected()


def test_a_key_keeps_its_partition_and_order(topics: Topics, tmp_path: Path) -> None:
    topics.feed(100)
    run_job(topics.job(), tmp_path / "root")
    found = committed_records(topics.server.address, topics.made)
    partitions: dict[bytes, set[int]] = {}
    for record in found:
        partitions.setdefault(record.key(), set()).add(record.partition())
    assert len(partitions) == 7 and all(len(one) == 1 for one in partitions.values())
    numbers: dict[bytes, list[int]] = {}
    for record in found:
        numbers.setdefault(record.key(), []).append(msgspec.json.decode(record.value())["number"])
    assert all(one == sorted(one) for one in numbers.values())


def test_live_mode_while_events_come_and_gangs_are_lost(topics: Topics, tmp_path: Path) -> None:
    topics.feed(30)
    live = GangRun(tmp_path, topics.job())
    live.start()
    live.until(lambda: sum(topics.rows().values()) == 30, "the first rows")
    for transactional in (False, True):
        topics.feed(50, transactional)
        live.checkpoint()
        live.lose()
        live.start()
    topics.feed(20)
    live.until(lambda: sum(topics.rows().values()) == 150, "all rows")
    live.stop()
    assert topics.rows() == topics.expected()


def test_a_job_moves_between_modes(topics: Topics, tmp_path: Path) -> None:
    for _ in range(2):
        topics.feed(40)
        run_job(topics.job(), tmp_path / "root")
        topics.feed(40)
        live = GangRun(tmp_path, topics.job())
        live.start()
        live.until(lambda: sum(topics.rows().values()) == len(topics.events), "all rows")
        live.stop()
    assert topics.rows() == topics.expected()


def test_a_topic_that_is_made_again_between_two_runs_is_refused(topics: Topics, tmp_path: Path) -> None:
    topics.feed(100)
    run_job(topics.job(), tmp_path / "root")
    delete_topic(topics.server.address, topics.given)
    create_topic(topics.server.address, topics.given, 2)
    topics.events.clear()
    topics.feed(200)  # its end is beyond what was read
    with pytest.raises(Refused, match="SW-SOURCE-CHANGED"):
        run_job(topics.job(), tmp_path / "root")
    assert sum(topics.rows().values()) == 100


def test_new_partitions_are_read_from_their_first_offset(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "LOOK_SECONDS", 0.0)
    topics.feed(60)
    run_job(topics.job(), tmp_path / "root")
    admin = AdminClient({"bootstrap.servers": topics.server.address, "log_level": 0})
    admin.create_partitions([NewPartitions(topics.given, 5)])[topics.given].result(60)
    wait_for(lambda: len(ends(topics.server.address, topics.given, False)) == 5)
    topics.feed(90)  # a card may now be in another partition than before
    run_job(topics.job(), tmp_path / "root")
    found = Counter(row.card for row in topics.rows().elements())
    assert found == Counter(event.card for event in topics.events), "no order is promised, and none is lost"
    last = {card: max(row.total for row in topics.rows() if row.card == card) for card in found}
    assert last == {card: sum(e.amount for e in topics.events if e.card == card) for card in found}


class Timed(Event):
    card: str
    amount: int
    at: datetime


class Counted(Event):
    card: str
    window_start: datetime
    payments: int
    total: int


FIRST = datetime(2026, 11, 1, tzinfo=UTC)


def test_windows_by_the_time_of_records_beside_a_partition_that_stays_empty(topics: Topics, tmp_path: Path) -> None:
    """Event time is that of the record; `idle_after` passes over the empty partition."""
    producer = Producer({"bootstrap.servers": topics.server.address, "log_level": 0})

    def write(*seconds: int) -> None:
        for number in seconds:
            value = json.dumps({"card": f"card-{number % 3}", "amount": number})
            at = FIRST + timedelta(seconds=number)
            producer.produce(topics.given, value, partition=0, timestamp=round(at.timestamp() * 1000))
        assert producer.flush(60) == 0

    source = KafkaSource(topics.server.address, topics.given, Timed, timestamp="at", max_events=30)

    def job() -> Job:
        made = Job("windows", checkpoint_every=0, parallelism=1)
        events = made.source(source, id="events", time="at", idle_after="1ms")
        counted = events.window(Fixed("10s"), key="card", id="windows").aggregate(
            Counted, payments=count(), total=sum_of("amount")
        )
        counted.sink(KafkaSink(topics.server.address, topics.made, key="card"), id="made")
        return made

    for seconds in (range(100), [200], [201]):
        write(*seconds)
        run_job(job(), tmp_path / "root")
    found = sorted(
        (
            msgspec.json.decode(one.value(), type=Counted)
            for one in committed_records(topics.server.address, topics.made)
        ),
        key=lambda one: (one.window_start, one.card),
    )
    assert found == [
        Counted(f"card-{card}", FIRST + timedelta(seconds=start), len(inside), sum(inside))
        for start in range(0, 100, 10)
        for card in range(3)
        if (inside := [number for number in range(start, start + 10) if number % 3 == card])
    ]


class Line(Event):
    value: bytes
    card: str
    at: datetime


def test_columns_and_objects_are_the_same_events(topics: Topics) -> None:
    topics.feed(50, transactional=True)
    source: KafkaSource[Any] = KafkaSource(
        topics.server.address, topics.given, Line, format="raw", key="card", timestamp="at"
    )
    found: dict[bool, list[Any]] = {}
    for source.in_columns in (False, True):
        pieces = [one for part in ("0", "1") for one in source.read(part, 0, source.latest([part])[part])]
        assert all(isinstance(one.given, Columns) is source.in_columns for one in pieces)
        found[source.in_columns] = [
            (event, at) for one in pieces for event, at in zip(one.events, one.offsets, strict=True)
        ]
    assert found[False] == found[True] and len(found[True]) == 50
