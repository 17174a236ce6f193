"""KafkaSink against a real broker: what a record has, what a topic refuses, and its ledger; with negative controls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from connectors.kits import KafkaKit, batch, entry, seen, staged
from kafka_broker.reading import committed_records, create_topic, delete_topic, records
from kafka_broker.server import KafkaServer
from sample import Seen
from servers import kafka  # noqa: F401  (fixture)
from streamwork import Event, KafkaSink, Refused
from streamwork.components import RowsRejected
from streamwork.connectors.kafka import outbox
from streamwork.connectors.kafka import sink as sink_module
from streamwork.connectors.kafka.ledger import SUFFIX, Ledger
from streamwork.connectors.kafka.sink import KafkaSink as RealSink

pytestmark = pytest.mark.slow
_numbers = itertools.count()


class Told(Event):
    shop: str
    number: int | None
    at: datetime
    meta: dict[str, str]
    body: str


AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
MILLISECONDS = 1_767_323_045_678
EVENTS = [
    Told("a", 1, AT, {"k": "v", "ü": ""}, "x"),
    Told("b:%", None, AT, {}, "\n"),
    Told("", -5, AT, {"k": "w"}, ""),
]


@pytest.fixture
def made(kafka: KafkaServer) -> Iterator[Any]:  # noqa: F811
    """Makes sinks, each on a topic of its own, as a driver has them."""
    sinks: list[KafkaSink[Any]] = []

    def make(event: type[Event] = Told, **options: Any) -> KafkaSink[Any]:
        sink: KafkaSink[Any] = KafkaSink(kafka.address, f"sunk-{next(_numbers)}", **options)
        sink.check(event)
        sink.open(event)
        sink.register("u", "s", 1)
        sinks.append(sink)
        return sink

    yield make
    for sink in sinks:
        sink.close()


def found(sink: KafkaSink[Any]) -> list[Any]:
    return committed_records(sink._cluster.servers, sink.topic)


@pytest.mark.parametrize("how", ["commit", "write"])
def test_key_headers_and_timestamp_come_from_fields(made: Any, how: str) -> None:
    sink = made(key=["shop", "number"], headers="meta", timestamp="at", partitions=1)
    sink.commit(entry(1, 0, 3), staged(EVENTS)) if how == "commit" else sink.write(batch(EVENTS))
    records = found(sink)
    assert [one.key() for one in records] == [b"a:1", b"b%3A%25:", b":-5"]
    assert [one.headers() for one in records] == [[("k", b"v"), ("ü", b"")], None, [("k", b"w")]]
    assert [one.timestamp()[1] for one in records] == [MILLISECONDS] * 3
    values = [msgspec.json.decode(one.value()) for one in records]
    assert values[0] == {"shop": "a", "number": 1, "at": "2026-01-02T03:04:05.678901Z", "body": "x"}, "headers apart"


def positive_murmur2(data: bytes) -> int:
    """As Kafka's Java client hashes keys, written from its description."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_keys_go_where_the_java_client_puts_them(made: Any) -> None:
    sink = made(Seen, key="card", partitions=5)
    sink.commit(entry(1, 0, 40), staged(seen(*range(40), cards=17)))
    records = found(sink)
    assert len({one.partition() for one in records}) == 5
    assert all(one.partition() == positive_murmur2(one.key()) % 5 for one in records)


def by_last_digit(key: bytes | None, partitions: int) -> int:
    assert key is not None and partitions == 3
    return int(key[-1:]) % partitions


def test_a_function_may_choose_partitions(made: Any) -> None:
    sink = made(Seen, key="card", partitions=3, partitioner=by_last_digit)
    sink.commit(entry(1, 0, 9), staged(seen(*range(9))))
    assert {(one.key(), one.partition()) for one in found(sink)} == {(b"c0", 0), (b"c1", 1), (b"c2", 2)}


class Line(Event):
    body: bytes


def upper(event: Line) -> bytes | None:
    return event.body.upper() or None


def test_values_may_be_raw_or_made_by_a_function(made: Any) -> None:
    lines = [Line(b"a\xff"), Line(b"")]
    raw = made(Line, format="raw")
    raw.commit(entry(1, 0, 2), staged(lines))
    assert [one.value() for one in found(raw)] == [b"a\xff", b""]
    function = made(Line, format=upper, key="body")
    function.commit(entry(1, 0, 2), staged(lines))
    assert [(one.key(), one.value()) for one in found(function)] == [(b"a\xff", b"A\xff"), (b"", None)], "a tombstone"


def test_a_record_that_the_topic_does_not_take_is_refused_and_leaves_nothing(made: Any, kafka: KafkaServer) -> None:  # noqa: F811
    topic = f"sunk-{next(_numbers)}"
    create_topic(kafka.address, topic, 1, max_message_bytes="4000")
    sink: KafkaSink[Any] = KafkaSink(kafka.address, topic)
    sink.open(Line)
    sink.register("u", "s", 1)
    good, large = Line(b"good"), Line(b"x" * 5_000)
    with pytest.raises(RowsRejected, match="the topic accepts at most"):
        sink.commit(entry(1, 0, 2), staged([good, large], 1))
    with pytest.raises(RowsRejected):
        sink.write(batch([good, large]))
    assert found(sink) == [] and sink.ledger("u", "s").position is None  # type: ignore[union-attr]
    assert sink.rejects([batch([good])]) == "" and "at most" in sink.rejects([batch([large])])
    sink.commit(entry(1, 0, 2), staged([good]))
    assert len(found(sink)) == 1
    sink.close()


def test_a_batch_is_larger_than_the_queue_of_the_client(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "QUEUE", 1_000)
    monkeypatch.setattr(outbox, "TOGETHER", 300)
    sink = made(Seen, partitions=2)
    sink.commit(entry(1, 0, 5_000), staged(seen(*range(5_000)), 2_500))
    assert len(found(sink)) == 5_000
    with_headers = made(headers="meta")
    with_headers.commit(entry(1, 0, 3_000), staged(EVENTS * 1_000, 3_000))
    assert len(found(with_headers)) == 3_000


def test_a_topic_that_was_created_again_has_no_ledger(made: Any, kafka: KafkaServer) -> None:  # noqa: F811
    """Its rows are gone, although the ledger topic is there: the job is told (SW-SINK-LOST), by the missing row."""
    sink = made(Seen)
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    sink.close()
    delete_topic(kafka.address, sink.topic)
    assert sink.ledger("u", "s") is None
    create_topic(kafka.address, sink.topic)
    assert sink.ledger("u", "s") is None


def test_a_ledger_of_another_job_refuses_before_anything_is_written(made: Any) -> None:
    sink = made(Seen)
    with pytest.raises(Refused, match=r"SW-SINK-OWNED: sunk-\d+\.streamwork-ledger at .* sink s of the job with uid u"):
        sink.check_target("v", "s")
    with pytest.raises(Refused, match="SW-SINK-OWNED"):
        sink.check_target("", "s")
    sink.check_target("u", "s")


def test_two_new_jobs_at_once_do_not_share_a_topic(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one registers after this one has found the ledger empty: at least one of both withdraws."""
    sink = made(Seen)
    delete_topic(sink._cluster.servers, sink.topic + SUFFIX)
    sink.close()
    other: KafkaSink[Any] = KafkaSink(sink._cluster.servers, sink.topic)
    other.open(Seen)
    refused: list[str] = []

    def register(one: KafkaSink[Any], uid: str) -> None:
        try:
            one.register(uid, "s", 1)
        except Refused as error:
            refused.append(f"{uid} {error.code}")

    whole = RealSink._transact

    def late(self: Any, *args: Any) -> None:
        monkeypatch.setattr(RealSink, "_transact", whole)
        register(other, "second")
        whole(self, *args)

    monkeypatch.setattr(RealSink, "_transact", late)
    register(sink, "first")
    assert refused == ["first SW-SINK-OWNED"]
    assert other.ledger("second", "s") is not None
    other.commit(entry(1, 0, 1, uid="second"), staged(seen(1)))
    other.close()


def test_the_ledger_is_found_behind_many_other_records(made: Any) -> None:
    sink = made(Seen)
    for epoch in range(1, 90):  # more than are read at first; what is registered again hides nothing
        sink.commit(entry(epoch, epoch - 1, epoch), iter(()))
    newcomer: KafkaSink[Any] = KafkaSink(sink._cluster.servers, sink.topic)
    row = newcomer.ledger("u", "s")
    assert row is not None and row.position == {"a/0": 89}
    record = Ledger(sink._cluster, sink.topic).newest()
    assert record is not None and (record.uid, record.sink, record.row) == ("u", "s", row)
    assert Ledger(sink._cluster, sink.topic).newest(but=record.key) is None


def test_rows_of_an_open_transaction_are_only_for_those_who_read_uncommitted(made: Any) -> None:
    sink = made(Seen)
    with pytest.raises(RuntimeError), sink._transactions.transaction():
        sink._send(sink._transactions, batch(seen(1)))
        sink._transactions.producer.flush(60)
        assert records_now(sink, "read_uncommitted") == 1
        assert records_now(sink, "read_committed") == 0
        raise RuntimeError("the job fails")
    sink.commit(entry(1, 0, 1), staged(seen(2)))
    assert [msgspec.json.decode(one.value())["number"] for one in found(sink)] == [2]


def records_now(sink: KafkaSink[Any], isolation: str) -> int:
    return len(records(sink._cluster.servers, sink.topic, isolation))


# ---- negative controls ---------------------------------------------------------------------------------------------------


def failure(check: Any) -> str:
    try:
        check()
    except AssertionError as error:
        return str(error)
    return ""


def offered_again(kit: KafkaKit) -> None:
    """A driver dies when it has committed; the next one offers the same rows."""
    old = kit.driver(1)
    old.commit(entry(1, 0, 2), staged(seen(1, 2)))
    kit.bury(old)
    heir = kit.driver(2)
    heir.commit(entry(1, 0, 2, fence=2), staged(seen(1, 2)))
    assert kit.rows() == kit.expected(seen(1, 2)), "rows come twice"


@pytest.mark.parametrize("kit", ["kafka"], indirect=True)
def test_what_is_offered_again_is_written_once(kit: KafkaKit) -> None:
    offered_again(kit)


@pytest.mark.parametrize("kit", ["kafka"], indirect=True)
def test_without_the_ledger_record_rows_come_twice(kit: KafkaKit, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = outbox.Outbox.send

    def rows_only(self: Any, topic: str, messages: Any) -> None:
        if not topic.endswith(SUFFIX):
            whole(self, topic, messages)

    monkeypatch.setattr(outbox.Outbox, "send", rows_only)
    assert "rows come twice" in failure(lambda: offered_again(kit))


def takeover(kit: KafkaKit) -> None:
    """A newer driver registers while the older one has a transaction open. Then the older one goes on."""
    old = kit.driver(1)
    old.commit(entry(1, 0, 2), staged(seen(1, 2)))

    def meanwhile() -> Any:
        yield batch(seen(3, 4))
        new = kit.driver(2)
        new.commit(entry(2, 2, 4, fence=2), staged(seen(3, 4)))
        yield batch(seen(5))

    try:
        old.commit(entry(2, 2, 5), meanwhile())
    except Refused as refused:
        assert refused.code == "SW-SINK-FENCED"
    assert kit.rows() == kit.expected(seen(1, 2, 3, 4)), "a driver that was taken over has written"


@pytest.mark.parametrize("kit", ["kafka"], indirect=True)
@pytest.mark.proves("a driver that was taken over in mid transaction goes on, in Kafka")
def test_a_driver_that_was_taken_over_in_the_middle_of_a_transaction_writes_nothing(kit: KafkaKit) -> None:
    takeover(kit)


@pytest.mark.parametrize("kit", ["kafka"], indirect=True)
@pytest.mark.proves("one transactional id of all drivers, in Kafka")
def test_without_one_transactional_id_a_driver_that_was_taken_over_writes(
    kit: KafkaKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: each producer has an id of its own, so the broker does not fence the older one."""
    whole = outbox.Transactions.__init__

    def its_own(self: Any, cluster: Any, partitioner: str, largest: int, name: str) -> None:
        whole(self, cluster, partitioner, largest, f"{name}.{next(_numbers)}")

    monkeypatch.setattr(sink_module.Transactions, "__init__", its_own)
    assert "a driver that was taken over has written" in failure(lambda: takeover(kit))
