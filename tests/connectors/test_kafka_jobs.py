"""Whole jobs from Kafka to Kafka. What a `read_committed` consumer finds is compared with the input."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

from gangs import end_gangs
from kafka_broker.reading import committed_records, create_topic
from kafka_broker.server import KafkaServer
from sample import Payment, Seen, Summing, expected_journal, run_job
from servers import kafka  # noqa: F401  (fixture)
from streamwork import Job, KafkaSink, KafkaSource
from streamwork.connectors.kafka.feed import feeds

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
