"""``streamwork bench kafka``: the connectors of Kafka on one core or so, beside the same work by hand with confluent-kafka.

    source        a topic, read by `KafkaSource` as events from JSON, and as raw values in columns; by hand: `consume`, a decoder
    sink          rows committed by `KafkaSink`, JSON and key, with the ledger record; by hand: encode, `produce`, one transaction
    empty commit  a transaction with a ledger record only; by hand: one with one record

Each takes turns with its equivalent by hand, with the same events, clients with the same settings, and the same broker, which runs
on the same machine. A ratio compares two successive measurements. Every event that was read, and every row that a consumer of
committed records finds, is counted and summed before a speed is accepted. CPU seconds are those of this process, not the broker's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench.contest import Wrong
from streamwork.bench.spread import spread
from streamwork.components import Event, LedgerEntry, Position
from streamwork.components.columns import Columns, to_batch
from streamwork.connectors.kafka import KafkaSink, KafkaSource, topics
from streamwork.connectors.kafka.cluster import Cluster

PARTITIONS = 2
CARDS = 10_000
TOGETHER = 10_000  # messages of one call, by hand
PATIENCE = 60.0
Note = Callable[[str], None]


class Transaction(Event):
    id: str
    card: str
    merchant: int
    amount: float
    kind: str


class Line(Event):
    value: bytes


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    read: int = 500_000
    written: int = 200_000  # rows of a transaction
    empty: int = 100  # transactions of a repeat
    repeats: int = 5


FULL = Sizes()
QUICK = Sizes(read=2_000, written=500, empty=3, repeats=1)


class Run:
    """What one measurement took."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.seconds = self.cpu = 0.0

    def __enter__(self) -> Run:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *anything: object) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu


def run(kafka: str, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if anything is missing. `kafka` is a broker whose topics may be added to."""
    bench = Bench(kafka, sizes, note)
    try:
        return bench.run()
    finally:
        bench.close()


class Bench:
    def __init__(self, kafka: str, sizes: Sizes, note: Note) -> None:
        self._kafka, self._sizes, self._note = kafka, sizes, note
        self._cluster = Cluster(kafka)
        self._name = f"bench-{time.time_ns()}"
        self._batch, self._values = _events(max(sizes.read, sizes.written))
        self._sink: KafkaSink[Any] = KafkaSink(
            kafka, f"{self._name}-sink", key="card", partitions=PARTITIONS, replicas=1
        )
        self._position = 0

    def close(self) -> None:
        self._sink.close()
        made = [f"{self._name}-{kind}" for kind in ("read", "sink", "sink.streamwork-ledger", "hand")]
        with topics.admin(self._cluster, "deleting the topics of the benchmark") as asking:
            there = [name for name in made if topics.describe(self._cluster, name)]
            for asked in asking.client.delete_topics(there).values():
                asking.answer(asked)

    def run(self) -> dict[str, Any]:
        self._fill()
        return {
            "source": self._source(),
            "sink": self._writing(),
            "empty_commit": self._empty(),
            "settings": {
                **msgspec.to_builtins(self._sizes),
                "partitions": PARTITIONS,
                "bytes_per_event": round(sum(map(len, self._values[:1000])) / len(self._values[:1000]), 1),
                "isolation": "read-committed",
            },
        }

    # ---- the source -------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        from confluent_kafka import Producer

        topics.create(self._cluster, f"{self._name}-read", PARTITIONS, 1, {})
        producer = Producer(
            {"bootstrap.servers": self._kafka, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
        )
        for number, value in enumerate(self._values[: self._sizes.read]):
            producer.produce(f"{self._name}-read", value, partition=number % PARTITIONS)
        if producer.flush(PATIENCE):
            raise Wrong("the topic was not filled")

    def _source(self) -> dict[str, Any]:
        ways = {"json": self._json, "by_hand": self._read_by_hand, "raw_columns": self._raw_columns}
        runs: dict[str, list[Run]] = {name: [] for name in ways}
        wanted = float(np.sum(self._batch.column("amount").to_numpy()[: self._sizes.read]))
        for repeat in range(-1, self._sizes.repeats):
            for name, way in ways.items():
                timed, count, total = way()
                if (count, total) != (self._sizes.read, wanted):
                    raise Wrong(f"{name}: {count} events, {total}; expected {self._sizes.read}, {wanted}")
                if repeat >= 0:
                    runs[name].append(timed)
                    self._note(f"source, {name}: {count / timed.seconds:,.0f} events/s")
        return self._compared(runs, self._sizes.read)

    def _json(self) -> tuple[Run, int, float]:
        return self._read(KafkaSource(self._kafka, f"{self._name}-read", Transaction))

    def _raw_columns(self) -> tuple[Run, int, float]:
        """The values are decoded for the check only, which is not timed."""
        source = KafkaSource(self._kafka, f"{self._name}-read", Line, format="raw")
        source.in_columns = True
        return self._read(source)

    def _read(self, source: KafkaSource[Any]) -> tuple[Run, int, float]:
        found: list[Any] = []
        with Run() as timed:
            parts = source.partitions()
            ends = source.ends(source.earliest(parts), self._sizes.read)
            for partition in parts:
                found += [piece.given for piece in source.read(partition, 0, ends[partition])]
        return timed, sum(map(len, found)), sum(map(_total, found))

    def _read_by_hand(self) -> tuple[Run, int, float]:
        from confluent_kafka import Consumer, TopicPartition

        decoder = msgspec.json.Decoder(Transaction)
        found: list[Transaction] = []
        with Run() as timed:
            consumer = Consumer(
                {
                    "bootstrap.servers": self._kafka,
                    "group.id": "by-hand",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    "fetch.queue.backoff.ms": 5,
                    "fetch.max.bytes": 50 << 20,
                    "max.partition.fetch.bytes": 8 << 20,
                    "queued.max.messages.kbytes": 64 << 10,
                }
            )
            for number in range(PARTITIONS):  # one after the other, as an instance with two partitions reads them
                consumer.assign([TopicPartition(f"{self._name}-read", number, 0)])
                left = consumer.get_watermark_offsets(TopicPartition(f"{self._name}-read", number))[1]
                while left:
                    messages = consumer.consume(min(TOGETHER, left), PATIENCE)
                    left -= len(messages)
                    found += [decoder.decode(message.value()) for message in messages]
        consumer.close()
        return timed, len(found), _total(found)

    # ---- the sink ---------------------------------------------------------------------------------------------------

    def _writing(self) -> dict[str, Any]:
        self._sink.open(Transaction)
        self._sink.register("bench", self._name, 1)
        topics.create(self._cluster, f"{self._name}-hand", PARTITIONS, 1, {})
        self._producer = self._new_producer()
        ways = {"kafka_sink": self._commit, "by_hand": self._write_by_hand}
        runs: dict[str, list[Run]] = {name: [] for name in ways}
        rows = self._batch.slice(0, self._sizes.written)
        for repeat in range(-1, self._sizes.repeats):
            for name, way in ways.items():
                timed = way(rows)
                if repeat >= 0:
                    runs[name].append(timed)
                    self._note(f"sink, {name}: {rows.num_rows / timed.seconds:,.0f} rows/s")
        for topic in ("sink", "hand"):
            self._check_written(f"{self._name}-{topic}", self._sizes.repeats + 1)
        return self._compared(runs, rows.num_rows)

    def _commit(self, rows: pa.RecordBatch) -> Run:
        with Run() as timed:
            self._sink.commit(self._next(), iter([rows]))
        return timed

    def _next(self) -> LedgerEntry:
        start, self._position = self._position, self._position + 1
        return LedgerEntry(
            uid="bench",
            sink=self._name,
            fence=1,
            epoch=self._position,
            start=Position({"in/0": start}),
            end=Position({"in/0": self._position}),
            parent_sha256=f"m{start}",
            manifest_sha256=f"m{self._position}",
            deterministic=True,
            first=start == 0,
        )

    def _new_producer(self) -> Any:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._kafka,
                "transactional.id": f"{self._name}-hand",
                "linger.ms": 20,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 2 * self._sizes.written,
            }
        )
        producer.init_transactions(PATIENCE)
        return producer

    def _write_by_hand(self, rows: pa.RecordBatch) -> Run:
        encoder, topic = msgspec.json.Encoder(), f"{self._name}-hand"
        with Run() as timed:
            self._producer.begin_transaction()
            for row in rows.to_pylist():
                self._producer.produce(topic, encoder.encode(row), key=row["card"])
            self._producer.commit_transaction(PATIENCE)
        return timed

    def _check_written(self, topic: str, times: int) -> None:
        """By `KafkaSource`, whose own results were checked before."""
        source = KafkaSource(self._kafka, topic, Transaction)
        wanted = float(np.sum(self._batch.column("amount").to_numpy()[: self._sizes.written])) * times
        until = time.monotonic() + PATIENCE
        while True:  # a commit does not show at once
            parts = source.partitions()
            ends = source.ends(source.earliest(parts), 1 << 60)
            found = [piece.events for part in parts for piece in source.read(part, 0, ends[part])]
            count, total = sum(map(len, found)), sum(map(_total, found))
            if (count, total) == (self._sizes.written * times, wanted):
                return
            if time.monotonic() > until:
                raise Wrong(f"{topic}: {count} rows, {total}; expected {self._sizes.written * times}, {wanted}")

    # ---- a commit without rows --------------------------------------------------------------------------------------

    def _empty(self) -> dict[str, Any]:
        topic = f"{self._name}-hand"
        record = self._values[0]

        def by_hand() -> None:
            self._producer.begin_transaction()
            self._producer.produce(topic, record)
            self._producer.commit_transaction(PATIENCE)

        def kafka_sink() -> None:
            self._sink.commit(self._next(), iter(()))

        figures: dict[str, Any] = {}
        taken: dict[str, list[list[float]]] = {"kafka_sink": [], "by_hand": []}
        for _ in range(self._sizes.repeats):
            for name, call in (("kafka_sink", kafka_sink), ("by_hand", by_hand)):
                taken[name].append([_milliseconds(call) for _ in range(self._sizes.empty)])
        for name, repeats in taken.items():
            figures[name] = {
                f"{short}_ms": spread([float(np.percentile(some, percent)) for some in repeats])
                for short, percent in (("p50", 50), ("p99", 99))
            }
        row = self._sink.ledger("bench", self._name)
        if row is None or row.position != {"in/0": self._position}:
            raise Wrong("the ledger is not at the last commit")
        return figures

    def _compared(self, runs: dict[str, list[Run]], events: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, some in runs.items():
            found[name] = {
                "events_per_s": spread([events / one.seconds for one in some], 0),
                "cpu_s_per_million": spread([one.cpu / events * 1e6 for one in some]),
            }
            if name != "by_hand":
                hand = runs["by_hand"]
                ratios = [theirs.seconds / ours.seconds for theirs, ours in zip(hand, some, strict=True)]
                found[name]["ratio_vs_by_hand"] = spread(ratios)
        return found


def _milliseconds(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def _total(given: Sequence[Any] | Columns) -> float:
    if isinstance(given, Columns):
        given = msgspec.json.Decoder(Transaction).decode_lines(b"\n".join(given.batch.column("value").to_pylist()))
    return float(sum(event.amount for event in given))


def _events(count: int) -> tuple[pa.RecordBatch, list[bytes]]:
    """The same events as columns, and as JSON values."""
    rng = np.random.default_rng(7)
    cards = rng.integers(0, CARDS, count).tolist()
    merchants, quarters = rng.integers(0, 5000, count).tolist(), rng.integers(0, 100_000, count).tolist()
    made = [
        Transaction(
            f"t{n:09d}", f"card-{card}", merchant, quarter / 4, "purchase"
        )  # the sum of quarters is exact in any order
        for n, (card, merchant, quarter) in enumerate(zip(cards, merchants, quarters, strict=True))
    ]
    encode = msgspec.json.Encoder().encode
    return to_batch(Transaction, made, "bench"), [encode(one) for one in made]
