"""What other consumers see of a topic, without any code of Streamwork: the oracle of the tests with a broker."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from waiting import wait_for

PATIENCE = 60.0
_TICK = 0.01


def create_topic(address: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    config = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(PATIENCE)
    until = time.monotonic() + PATIENCE
    while not has_topic(address, topic):
        assert time.monotonic() < until, f"{topic} does not appear"
        time.sleep(_TICK)


def has_topic(address: str, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        return bool(admin.describe_topics(TopicCollection([topic]))[topic].result(PATIENCE).partitions)
    except KafkaException:
        return False


def delete_topic(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.delete_topics([topic])[topic].result(PATIENCE)
    until = time.monotonic() + PATIENCE
    while has_topic(address, topic):
        assert time.monotonic() < until, f"{topic} does not go away"
        time.sleep(_TICK)


def ends(address: str, topic: str, committed: bool) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    until = time.monotonic() + PATIENCE
    while True:
        found = admin.list_topics(topic, timeout=PATIENCE).topics[topic]
        wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in found.partitions}
        answers = admin.list_offsets(wanted, isolation_level=level, request_timeout=PATIENCE)
        try:
            return {place.partition: answer.result(PATIENCE).offset for place, answer in answers.items()}
        except KafkaException:  # a new partition, or a broker that has just started
            if time.monotonic() > until:
                raise
            time.sleep(_TICK)


def committed_records(address: str, topic: str, open_transactions: bool = False) -> list[Message]:
    """All records that a `read_committed` consumer gets, partition by partition. It waits until no transaction is open: for some
    milliseconds after a commit, readers do not see it.
    """
    until = time.monotonic() + PATIENCE
    while not open_transactions and ends(address, topic, True) != ends(address, topic, False):
        assert time.monotonic() < until, f"a transaction in {topic} stays open"
        time.sleep(_TICK)
    return records(address, topic, "read_committed")


def records(address: str, topic: str, isolation: str) -> list[Message]:
    settings: dict[str, Any] = {"bootstrap.servers": address, "group.id": "tests", "log_level": 0}
    settings |= {"enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error"}
    consumer = Consumer({**settings, "isolation.level": isolation, "fetch.wait.max.ms": 10})
    try:
        left = set(ends(address, topic, True))
        found: list[list[Message]] = [[] for _ in left]
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        while left:
            message = consumer.poll(PATIENCE)
            assert message is not None, f"{topic} is not answered"
            if message.error() is None:
                found[message.partition()].append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise AssertionError(str(message.error()))
        return [message for partition in found for message in partition]
    finally:
        consumer.close()


def wait_for_markers(address: str, topic: str) -> None:
    """A transaction has ended when its producer says so, but its markers follow: wait until none is missing."""
    wait_for(lambda: ends(address, topic, True) == ends(address, topic, False))
