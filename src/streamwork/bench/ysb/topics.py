"""The events in a topic: seven-field JSON, sent by one process for each partition, at a rate or as fast as the broker takes them.

python -m streamwork.bench.ysb.topics ORDER     # what `Senders` starts; ORDER is JSON
"""

from __future__ import annotations

import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self

import msgspec

from streamwork.bench.ysb.events import Stream
from streamwork.errors import JobFailed

PATIENCE = 60.0
PIECE = 4_096
"""Events that are handed to the client at a time."""
TICK = 0.005
"""At a rate: seconds between two checks for events that are due."""
WAITING = 200_000
"""Maximum events that wait for the broker."""


class Order(msgspec.Struct, frozen=True):
    """Send the events [start, end) of a partition."""

    servers: str
    topic: str
    stream: Stream
    partition: int
    start: int
    end: int
    began: float = 0.0
    """If not 0, an event is due when as much time has passed since then as its event time is after that of event `start`."""


class Sent(msgspec.Struct, frozen=True):
    events: int
    seconds: float  # from the first event to the last acknowledgement
    behind: float  # at a rate: the most seconds that an event was sent after it was due


def create(servers: str, topic: str, partitions: int, **config: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    try:
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(PATIENCE)
        until = time.monotonic() + PATIENCE
        while len(getattr(admin.list_topics(timeout=PATIENCE).topics.get(topic), "partitions", ())) < partitions:
            if time.monotonic() > until:
                raise JobFailed("SW-BENCH-FAILED", f"topic {topic} does not appear", "check the broker")
            time.sleep(TICK)
    except KafkaException as error:
        raise JobFailed(
            "SW-BENCH-FAILED",
            f"topic {topic} cannot be created at {servers}: {error.args[0].str()}",
            "start a broker, and pass its address with --kafka",
        ) from None


def delete(servers: str, *topics: str) -> None:
    """Remove topics with their data."""
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": servers, "log_level": 0}).delete_topics(list(topics))
    for one in found.values():
        one.exception(PATIENCE)


def ends(servers: str, topic: str) -> dict[int, int]:
    """The offset after the last record of each partition."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    known = admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
    found = admin.list_offsets({TopicPartition(topic, number): OffsetSpec.latest() for number in known})
    return {place.partition: answer.result(PATIENCE).offset for place, answer in found.items()}


class Senders:
    """One process for each partition. `end` is the number of events in all."""

    def __init__(self, servers: str, topic: str, stream: Stream, end: int, start: int = 0, began: float = 0.0) -> None:
        self._processes = []
        for number in range(stream.partitions):
            bounds = start // stream.partitions, end // stream.partitions
            order = Order(servers, topic, stream, number, *bounds, began)
            command = [sys.executable, "-m", __name__, msgspec.json.encode(order).decode()]
            self._processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def result(self) -> Sent:
        """Waits until all events are acknowledged. The seconds are those of the slowest."""
        found = []
        for process in self._processes:
            output, errors = process.communicate()
            if process.returncode:
                said = errors.decode(errors="replace").strip().splitlines()[-1:]
                raise JobFailed("SW-BENCH-FAILED", f"the generator has failed: {' '.join(said)}", "check the broker")
            found.append(msgspec.json.decode(output, type=Sent))
        return Sent(
            sum(one.events for one in found), max(one.seconds for one in found), max(one.behind for one in found)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def send(order: Order) -> Sent:
    """Carry out an order. Returns when all events are acknowledged."""
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": order.servers,
        "linger.ms": 5 if order.began else 50,
        "batch.size": 1 << 20,
        "queue.buffering.max.messages": 2 * WAITING,
        "queue.buffering.max.kbytes": 1 << 20,
        "log_level": 0,
    }
    producer, failed = Producer(settings), list[Any]()
    first, behind = time.perf_counter(), 0.0
    at = order.start
    while at < order.end:
        count = min(PIECE, order.end - at)
        if order.began:
            now = time.time() - order.began
            due = order.start + int(now * 1e6 / order.stream.step) + 1
            if at >= due:
                time.sleep(TICK)
                continue
            behind = max(behind, now - (at - order.start) * order.stream.step / 1e6)
            count = min(count, due - at)
        while len(producer) > WAITING:
            producer.poll(TICK)
        messages = [{"value": value} for value in order.stream.rows(order.partition, at, count).as_json(at)]
        producer.produce_batch(order.topic, messages, partition=order.partition, on_delivery=_into(failed))
        producer.poll(0)
        at += count
    left = producer.flush(PATIENCE)
    if failed or left:
        raise JobFailed("SW-BENCH-FAILED", f"{left} events wait; {failed[:1]}", "check the broker")
    return Sent(order.end - order.start, time.perf_counter() - first, behind)


def _into(failed: list[Any]) -> Any:
    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    return delivered


if __name__ == "__main__":
    print(msgspec.json.encode(send(msgspec.json.decode(sys.argv[1], type=Order))).decode())
