"""KafkaSource against a real broker: ranges with holes, what is gone, what was replaced, what fills an event."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from kafka_broker.reading import create_topic, has_topic, wait_for_markers
from kafka_broker.server import KafkaServer
from sample import Payment
from servers import kafka  # noqa: F401  (fixture)
from source_ends import end_of
from streamwork import Event, JobFailed, KafkaSource, Refused
from streamwork.components import ReadProgress
from streamwork.connectors.kafka.feed import feeds
from waiting import wait_for

pytestmark = pytest.mark.slow
_numbers = itertools.count()


class World:
    """A topic of its own, and a producer."""

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        self.topic = f"payments-{next(_numbers)}"
        self.admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})

    def create(self, partitions: int = 1, **config: str) -> World:
        create_topic(self.server.address, self.topic, partitions, **config)
        return self

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.server.address, "log_level": 0, "linger.ms": 5, **settings})

    def write(self, *amounts: int, partition: int = 0, producer: Producer | None = None) -> None:
        used = producer or self.producer()
        for amount in amounts:
            used.produce(self.topic, payment(amount), partition=partition)
        assert used.flush(60) == 0

    def transaction(self, *amounts: int, commit: bool = True) -> None:
        used = self.producer(**{"transactional.id": f"test-{next(_numbers)}"})
        used.init_transactions(60)
        used.begin_transaction()
        self.write(*amounts, producer=used)
        used.commit_transaction(60) if commit else used.abort_transaction(60)
        wait_for_markers(self.server.address, self.topic)

    def source(self, **options: Any) -> KafkaSource[Payment]:
        return KafkaSource(self.server.address, self.topic, Payment, **options)

    def recreate(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(60)
        wait_for(lambda: not has_topic(self.server.address, self.topic))
        self.create()


@pytest.fixture
def world(kafka: KafkaServer) -> Iterator[World]:  # noqa: F811
    yield World(kafka)
    feeds.close()


def payment(amount: int) -> bytes:
    return json.dumps({"card": f"c{amount % 3}", "amount": amount}).encode()


def amounts_of(source: KafkaSource[Any], start: int, end: int, partition: str = "0") -> list[int]:
    return [event.amount for piece in source.read(partition, start, end) for event in piece.events]


def offsets_of(source: KafkaSource[Any], start: int, end: int) -> list[int]:
    return [int(one) for piece in source.read("0", start, end) for one in piece.offsets]


def test_any_range_reads_the_same_events_whatever_was_read_before(world: World) -> None:
    world.create(2)
    world.write(*range(300))
    world.write(*range(1_000, 1_100), partition=1)
    source = world.source()
    assert source.partitions() == ["0", "1"]
    assert source.ends({"0": 0, "1": 0}, 10**9) == {"0": 300, "1": 100}
    assert source.ends({"0": 10, "1": 50}, 20) == {"0": 30, "1": 70}
    assert source.has_more({"0": 30}) and not source.has_more({"0": 300, "1": 100})
    for start, end in [(0, 100), (100, 101), (101, 300), (0, 300), (299, 300), (5, 7)]:
        assert amounts_of(source, start, end) == list(range(start, end))
        assert offsets_of(source, start, end) == list(range(start, end))
    assert amounts_of(source, 0, 100, "1") == list(range(1_000, 1_100))
    world.write(300)
    assert amounts_of(source, 300, 301) == [300]


def test_markers_and_aborted_rows_are_holes(world: World) -> None:
    """Offsets: 0 1 2 rows, 3 marker, 4 5 aborted, 6 marker, 7 row, 8 marker, 9 aborted, 10 marker."""
    world.create()
    world.transaction(0, 1, 2)
    world.transaction(100, 101, commit=False)
    world.transaction(3)
    world.transaction(102, commit=False)
    source = world.source()
    wait_for(lambda: source.latest(["0"]) == {"0": 11})  # readers see the end of a transaction some milliseconds later
    rows = {0: 0, 1: 1, 2: 2, 7: 3}
    for start, end in itertools.combinations(range(12), 2):
        if end <= 11:
            assert offsets_of(source, start, end) == [at for at in rows if start <= at < end], (start, end)
    assert amounts_of(source, 0, 11) == [0, 1, 2, 3]
    dirty = world.source(isolation="read-uncommitted")
    assert amounts_of(dirty, 0, 11) == [0, 1, 2, 100, 101, 3, 102]


def test_an_open_transaction_is_not_read(world: World) -> None:
    world.create()
    world.write(0, 1)
    open_one = world.producer(**{"transactional.id": f"test-{next(_numbers)}"})
    open_one.init_transactions(60)
    open_one.begin_transaction()
    world.write(2, 3, producer=open_one)
    source, dirty = world.source(), world.source(isolation="read-uncommitted")
    assert (end_of(source, "0", 0, 100), end_of(dirty, "0", 0, 100)) == (2, 4)
    assert amounts_of(dirty, 0, 4) == [0, 1, 2, 3]
    open_one.commit_transaction(60)
    wait_for(lambda: end_of(source, "0", 0, 100) == 5)
    assert amounts_of(source, 0, 5) == [0, 1, 2, 3]


def test_what_compaction_has_removed_is_a_hole(world: World) -> None:
    world.create(cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01", delete_retention_ms="50")
    producer = world.producer()

    def written_again() -> bool:
        for amount in range(20):
            producer.produce(world.topic, payment(amount), key=b"same")
        assert producer.flush(60) == 0
        return len(offsets_of(world.source(), 0, 20)) < 20

    wait_for(written_again)
    source = world.source()
    end = end_of(source, "0", 0, 10**6)

    def whole() -> list[int]:
        feeds.close()
        return offsets_of(source, 0, end)

    before = whole()
    found = [at for cut in range(0, end, 7) for at in offsets_of(source, cut, min(end, cut + 7))]
    assert before[-1] == found[-1] == end - 1, "the last record stays"
    assert set(whole()) <= set(found) <= set(before) < set(range(end)), "compaction goes on meanwhile"


def test_offsets_that_retention_has_removed_are_refused(world: World) -> None:
    world.create()
    world.write(*range(10))
    source = world.source()
    assert amounts_of(source, 0, 3) == [0, 1, 2]
    feeds.close()  # what was fetched ahead would still be there
    place = TopicPartition(world.topic, 0, 5)
    world.admin.delete_records([place])[place].result(60)
    assert source.earliest(["0"]) == {"0": 5}
    with pytest.raises(Refused, match=r"SW-KAFKA-GONE: offsets 3 to 5 of topic .*, partition 0, are gone"):
        amounts_of(source, 3, 10)
    assert amounts_of(source, 5, 10) == [5, 6, 7, 8, 9]


def test_a_topic_that_was_created_again_is_not_recognised(world: World) -> None:
    world.create()
    world.write(*range(5))
    source = world.source()
    mark = source.mark("0", 5)
    assert mark and source.recognises("0", mark)
    world.recreate()
    assert not source.recognises("0", mark)
    with pytest.raises(Refused, match="SW-KAFKA-SHRUNK"):
        source.ends({"0": 5}, 10)


def test_partitions_that_are_added_begin_at_their_first_offset(world: World) -> None:
    world.create()
    source = world.source()
    assert source.partitions() == ["0"] and source.fixed_partitions() is None
    world.admin.create_partitions([NewPartitions(world.topic, 3)])[world.topic].result(60)
    assert source.partitions() == ["0"], "they are not looked up each time"

    def half_a_minute_later() -> list[str]:
        source._looked -= 31
        return source.partitions()

    wait_for(lambda: half_a_minute_later() == ["0", "1", "2"])
    assert source.earliest(["1", "2"]) == {"1": 0, "2": 0}


def test_a_job_may_begin_at_a_time(world: World) -> None:
    world.create(2)
    producer = world.producer()
    for number in range(5):
        producer.produce(world.topic, payment(number), partition=0, timestamp=1_700_000_000_000 + 10 * number)
    assert producer.flush(60) == 0
    source, first = world.source(), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    for milliseconds, offset in [(-1, 0), (0, 0), (20, 2), (20.001, 3), (40, 4), (41, 5)]:
        found = source.at_time(["0", "1"], first + timedelta(milliseconds=milliseconds))
        assert found == {"0": offset, "1": 0}, milliseconds


class Full(Event):
    card: str
    amount: int
    at: datetime
    name: str
    meta: dict[str, str]


def test_timestamp_key_and_headers_fill_fields(world: World) -> None:
    world.create()
    producer = world.producer()
    producer.produce(
        world.topic, payment(7), key="k7", timestamp=1_700_000_000_123, headers={"a": "x", "b": "ü".encode()}
    )
    producer.produce(world.topic, payment(8), key=None, timestamp=1_700_000_000_124)
    assert producer.flush(60) == 0
    source = KafkaSource(
        world.server.address, world.topic, Full, timestamp="at", key="name", headers="meta", on_error="dead-letter"
    )
    (piece,) = source.read("0", 0, 2)
    at = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert piece.events == [Full("c1", 7, at, "k7", {"a": "x", "b": "ü"})]
    assert piece.letters == [(payment(8).decode(), piece.letters[0][1])]
    assert "offset 1, field 'name': expected str, got NoneType" in piece.letters[0][1]


def test_records_that_are_no_events_are_named(world: World) -> None:
    world.create()
    producer = world.producer()
    good = [payment(0), payment(1)]
    bad = [b'{"card": "x"}', b"", b'{"card": 1, "amount": 1}', None, payment(2) + b"\n" + payment(3), b"\xff"]
    for value in [good[0], *bad, good[1]]:
        producer.produce(world.topic, value)
    assert producer.flush(60) == 0
    (piece,) = world.source(on_error="dead-letter").read("0", 0, 8)
    assert [event.amount for event in piece.events] == [0, 1] and list(piece.offsets) == [0, 7]
    assert [why.partition(", offset ")[2][:1] for _, why in piece.letters] == list("123456")
    (piece,) = world.source(on_error="drop").read("0", 0, 8)
    assert (piece.dropped, piece.came) == (6, 8)
    with pytest.raises(JobFailed, match=r"partition 0, offset 1, field 'amount'") as failed:
        amounts_of(world.source(), 0, 8)
    assert failed.value.about_one_event and not failed.value.retryable


class Line(Event):
    value: str


def number_of(value: bytes) -> Payment:
    return Payment("made", int(value))


def test_raw_values_and_a_function(world: World) -> None:
    world.create()
    producer = world.producer()
    for value in (b"1", b"2", b"x"):
        producer.produce(world.topic, value)
    assert producer.flush(60) == 0
    raw = KafkaSource(world.server.address, world.topic, Line, format="raw")
    assert [event.value for piece in raw.read("0", 0, 3) for event in piece.events] == ["1", "2", "x"]
    (piece,) = world.source(format=number_of, on_error="drop").read("0", 0, 3)
    assert (piece.events, piece.dropped) == ([Payment("made", 1), Payment("made", 2)], 1)


def test_a_source_that_reads_all_the_time_asks_its_consumer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create()
    world.transaction(*range(10))
    source = world.source()

    def forbidden(*a: Any, **k: Any) -> Any:
        raise AssertionError("a request for each poll")

    monkeypatch.setattr("streamwork.connectors.kafka.topics.admin", forbidden)
    at, found = 0, list[int]()

    def reads(until: int) -> Callable[[], bool]:
        def step() -> bool:
            nonlocal at
            end = source.available({"0": at}, 4)["0"]
            assert at <= end
            found.extend(amounts_of(source, at, end))
            at = end
            return at == until

        return step

    wait_for(reads(11))  # past the marker, too
    world.transaction(10, 11)
    wait_for(reads(14))
    assert found == list(range(12))


def test_positions_are_published_for_monitors(world: World) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    world.create()
    world.write(*range(5))
    source = world.source(publish=f"lag-{world.topic}")
    source.keep(ReadProgress("u", "job", "payments", {"0": 1}, {"0": 4}))
    asked = world.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"lag-{world.topic}")])
    (answer,) = asked.values()
    assert [(one.partition, one.offset) for one in answer.result(60).topic_partitions] == [(0, 4)]


def test_a_missing_topic_is_named(world: World) -> None:
    with pytest.raises(JobFailed, match="SW-KAFKA-TOPIC: there is no topic payments-") as failed:
        world.source().partitions()
    assert failed.value.about_setup
