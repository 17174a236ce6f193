"""A world with Kafka on both sides: its source is a topic with one partition, its sink a topic with two."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka import Producer

from crashes import Crash
from kafka_broker.reading import committed_records, create_topic, has_topic
from matrix.targets import Ledger, Row, Target, server
from matrix.world import World
from sample import Payment, Seen
from streamwork import KafkaSink, KafkaSource
from streamwork.components import Slice
from streamwork.connectors.kafka.ledger import SUFFIX

_numbers = itertools.count()


class Mortal:
    """A producer that is gone when the machine is: what it has left open stays open."""

    def __init__(self, producer: Any, world: World) -> None:
        self._producer, self._world = producer, world

    def __getattr__(self, name: str) -> Any:
        if self._world.dead and name != "purge":
            raise Crash("the machine is down")
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)


class WatchedKafkaSink(KafkaSink[Any]):
    def __init__(self, world: World, servers: str, topic: str, name: str) -> None:
        super().__init__(servers, topic, key="card", partitions=2)
        self._world, self._name = world, name

    def open(self, event: type[Any]) -> None:
        self._world.opened.append(self)
        super().open(event)

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        super().register(uid, sink_id, fence)
        assert self._transactions is not None
        self._transactions.producer = Mortal(self._transactions.producer, self._world)  # type: ignore[assignment]

    def write(self, batch: pa.RecordBatch) -> None:
        self._world.passes(f"about to write {self._name}")
        super().write(batch)
        self._world.passes(f"has written {self._name}")

    def _send(self, outbox: Any, batch: pa.RecordBatch) -> None:
        super()._send(outbox, batch)
        self._world.passes(f"rows written to {self._name}")


class WatchedKafkaSource(KafkaSource[Payment]):
    world: World

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        half = (start + end) // 2
        yield from super().read(partition, start, half)
        self.world.passes(f"half read {start}")
        yield from super().read(partition, half, end)


class KafkaTarget(Target):
    def __init__(self, world: KafkaWorld, name: str) -> None:
        super().__init__(world, name)
        self._servers, self._topic = server("kafka").address, f"{world.topic}-{name}"

    def sink(self) -> Any:
        return WatchedKafkaSink(self.world, self._servers, self._topic, self.name)

    def rows(self) -> list[Row]:
        if not has_topic(self._servers, self._topic):
            return []
        found = [msgspec.json.decode(one.value(), type=Seen) for one in committed_records(self._servers, self._topic)]
        return [(one.card, one.number, one.total) for one in found]

    def ledger(self) -> Ledger:
        records = committed_records(self._servers, self._topic + SUFFIX)
        row = json.loads(records[-1].value())["row"]
        return row["position"] or {}, row["manifest_sha256"]


class KafkaWorld(World):
    def __init__(
        self, folder: Path, operator: str = "sums", semantics: str = "exactly-once", tracking: Any = None
    ) -> None:
        super().__init__(folder, (), operator, semantics, tracking)
        self.topic = f"world-{next(_numbers)}"
        self.sinks = ("topic",)
        self.targets = {"topic": KafkaTarget(self, "topic")}
        self._sent = 0
        create_topic(server("kafka").address, self.topic)

    def source(self, events: Sequence[Payment]) -> Any:
        """The offset of an event is its place, as in a list."""
        producer = Producer({"bootstrap.servers": server("kafka").address, "log_level": 0, "linger.ms": 0})
        for event in events[self._sent :]:
            producer.produce(self.topic, json.dumps({"card": event.card, "amount": event.amount}), partition=0)
            self._sent += 1
        assert producer.flush(60) == 0
        source = WatchedKafkaSource(server("kafka").address, self.topic, Payment, max_events=self.slice)
        source.world = self
        return source
