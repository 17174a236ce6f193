"""One kit per sink: how to make it, to look at its target as a reader would, and to break it between any two operations.

A kit stands for one target. Each sink that it makes stands for the sink of another process: nothing is shared but the target.
"""

from __future__ import annotations

import itertools
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar

import duckdb
import msgspec
import psycopg
import pyarrow as pa
import pytest
import redis

from kafka_broker.reading import committed_records, delete_topic, has_topic
from kafka_broker.server import KafkaServer
from real_servers import PostgresServer, RedisServer
from sample import Seen
from streamwork import (
    Digits,
    Event,
    EventLog,
    KafkaSink,
    LogSink,
    ParquetSink,
    PostgresSink,
    RedisSink,
    Sink,
    SqliteSink,
)
from streamwork.components import LedgerEntry, Position
from streamwork.components.columns import to_batch
from streamwork.components.schema import fields_of
from streamwork.connectors import postgres as postgres_module
from streamwork.connectors.folders import Folders
from streamwork.connectors.kafka.ledger import SUFFIX
from streamwork.log import LogReader
from streamwork.testing.memory import MemorySink, Table
from streamwork.world import RealDisk

Rows = list[tuple[Any, ...]]


class Inner(Event):
    x: int
    at: datetime


class Wide(Event):
    name: str
    flag: bool
    count: int
    ratio: float
    raw: bytes
    when: datetime
    day: date
    price: Annotated[Decimal, Digits(10, 2)]
    tags: list[str]
    sizes: dict[str, int]
    inner: Inner
    nothing: int | None


class Real(Event):
    """Floats that not every target has a word for."""

    name: str
    value: float
    maybe: float | None
    many: list[float]


class Died(BaseException):
    """The process is gone: nothing of it runs any more, not even an `except Exception`."""


class Gate:
    """Lets `steps` operations pass. At the next one `at` is called, by default to die: from then on every operation raises.

    With `done` the operation itself still takes place, only nobody learns of it.
    """

    def __init__(self, steps: int, done: bool = False, at: Callable[[], None] | None = None) -> None:
        self.left = steps
        self.reached = False
        self._done = done
        self._at = at
        self._dead = False

    def passes(self, operation: Callable[[], Any]) -> Any:
        if self._dead:
            raise Died
        self.left -= 1
        if self.left != -1:
            return operation()
        self.reached = True
        if self._at is not None:
            self._at()
            return operation()
        if self._done:
            operation()
        self._dead = True
        raise Died


class Gated:
    """An object, some of whose methods go through a gate."""

    def __init__(self, real: Any, gate: Gate, *names: str, wrap: dict[str, Callable[[Any], Any]] | None = None) -> None:
        self._real, self._gate, self._names, self._wrap = real, gate, names, wrap or {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name in self._wrap:
            return lambda *a, **k: self._wrap[name](found(*a, **k))
        if name in self._names:
            return lambda *a, **k: self._gate.passes(lambda: found(*a, **k))
        return found

    def __len__(self) -> int:
        return len(self._real)


def entry(epoch: int, start: int, end: int, fence: int = 1, **changes: Any) -> LedgerEntry:
    made = LedgerEntry(
        uid="u", sink="s", fence=fence, epoch=epoch, start=Position({"a/0": start}), end=Position({"a/0": end}),
        parent_sha256=f"m{epoch - 1}", manifest_sha256=f"m{epoch}", deterministic=True, first=start == 0,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def seen(*numbers: int, cards: int = 3) -> list[Seen]:
    return [Seen(f"c{n % cards}", n, n * 10) for n in numbers]


def batch(events: list[Any]) -> pa.RecordBatch:
    return to_batch(type(events[0]) if events else Seen, events, "test")


def staged(events: list[Any], size: int = 4) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(events), size):
        yield batch(events[at : at + size])


def as_rows(events: list[Seen]) -> Rows:
    return sorted((e.card, e.number, e.total) for e in events)


class Kit(ABC):
    keyed: ClassVar[bool] = False
    server: ClassVar[str] = ""
    has_owner: ClassVar[bool] = True

    key: str | None = None
    options: ClassVar[dict[str, Any]] = {}  # of the sink, besides

    def __init__(self, folder: Path, server: Any) -> None:
        self.folder = folder
        self._made: list[Any] = []

    @abstractmethod
    def _new(self) -> Sink[Any]: ...

    def make(self, event: type[Event] = Seen) -> Any:
        self.key = event.__struct_fields__[0] if self.keyed else None
        sink = self._new()
        self._made.append(sink)
        sink.open(event)
        return sink

    def driver(self, fence: int = 1, uid: str = "u", event: type[Event] = Seen) -> Any:
        sink = self.make(event)
        sink.register(uid, "s", fence)
        return sink

    @abstractmethod
    def rows(self) -> Rows:
        """All (card, number, total) that readers see, sorted."""

    def wide(self) -> list[Wide]:
        raise NotImplementedError

    @abstractmethod
    def gate(self, sink: Any, gate: Gate) -> None:
        """Let every operation on the target go through a gate."""

    def bury(self, sink: Any) -> None:
        """What the operating system does when a process has died."""
        sink.close()

    def given(self, events: list[Seen]) -> list[Seen]:
        """What a check that has its own events gives to this sink."""
        return events

    def expected(self, events: list[Seen]) -> Rows:
        return as_rows(list({e.card: e for e in events}.values()) if self.keyed else events)

    def close(self) -> None:
        for sink in self._made:
            with suppress(Exception, Died):
                sink.close()


def from_text(values: dict[str, Any]) -> Wide:
    """Back from the documented text formats."""
    found = {}
    for name, kind in fields_of(Wide).items():
        value, annotation = values.get(name), _HINTS[name]
        if value is None or (isinstance(value, bytes) and name == "raw"):
            found[name] = value
        elif kind.arrow.num_fields:
            found[name] = msgspec.json.decode(value, type=annotation)
        else:
            found[name] = msgspec.convert(value, annotation, strict=False)
    return Wide(**found)


_HINTS = {f.name: f.type for f in msgspec.structs.fields(Wide)}


class SqlKit(Kit):
    """A database with one table, that can be asked."""

    @abstractmethod
    def query(self, text: Any) -> Rows: ...

    def rows(self) -> Rows:
        return sorted(self.query("SELECT card, number, total FROM seen"))

    def bury(self, sink: Any) -> None:
        if isinstance(sink._connection, Gated):
            sink._connection = sink._connection._real
        sink.close()


class SqliteKit(SqlKit):
    @property
    def path(self) -> Path:
        return self.folder / "out.db"

    def _new(self) -> Sink[Any]:
        return SqliteSink(self.path, "seen", key=self.key, **self.options)

    def query(self, text: str) -> Rows:
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute(text).fetchall()

    def execute(self, text: str) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute(text)

    def wide(self) -> list[Wide]:
        names = Wide.__struct_fields__
        return [from_text(dict(zip(names, row, strict=True))) for row in self.query("SELECT * FROM seen")]

    def gate(self, sink: Any, gate: Gate) -> None:
        sink._connection = Gated(sink._connection, gate, "execute", "executemany")


class SqliteUpsertKit(SqliteKit):
    keyed = True
    key = "card"


class PostgresKit(SqlKit):
    server = "postgres"
    _numbers = itertools.count()

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder, server)
        self.schema = f"test_{next(self._numbers)}"
        self._server = server
        with psycopg.connect(server.dsn, autocommit=True) as db:
            db.execute(f"CREATE SCHEMA {self.schema}")

    @property
    def dsn(self) -> str:
        return f"{self._server.dsn}&options=-csearch_path%3D{self.schema}"

    def _new(self) -> Sink[Any]:
        return PostgresSink(self.dsn, "seen", key=self.key, **self.options)

    def query(self, text: Any) -> Rows:
        with psycopg.connect(self.dsn) as db:
            return db.execute(text).fetchall()

    def execute(self, text: Any) -> None:
        with psycopg.connect(self.dsn) as db:
            db.execute(text)

    def wide(self) -> list[Wide]:
        return [
            msgspec.convert(dict(zip(Wide.__struct_fields__, row, strict=True)), Wide)
            for row in self.query("SELECT * FROM seen")
        ]

    def gate(self, sink: Any, gate: Gate) -> None:
        sink._connection = Gated(sink._connection, gate, "execute", "cursor")


class PostgresUpsertKit(PostgresKit):
    keyed = True
    key = "card"


class RedisKit(Kit):
    server = "redis_server"
    keyed = True

    def __init__(self, folder: Path, server: RedisServer) -> None:
        super().__init__(folder, server)
        self._server = server
        self.client = redis.Redis.from_url(server.url)
        self.client.flushall()

    def _new(self) -> Sink[Any]:
        return RedisSink(self._server.url, key=self.key or "card", prefix="seen", **self.options)

    def hashes(self) -> list[dict[str, bytes]]:
        found = [self.client.hgetall(name) for name in self.client.scan_iter("seen:*", _type="hash")]
        return [{name.decode(): value for name, value in row.items()} for row in found]

    def rows(self) -> Rows:
        return sorted((r["card"].decode(), int(r["number"]), int(r["total"])) for r in self.hashes())

    def wide(self) -> list[Wide]:
        return [from_text({n: v if n == "raw" else v.decode() for n, v in row.items()}) for row in self.hashes()]

    def gate(self, sink: Any, gate: Gate) -> None:
        script = lambda made: lambda **k: gate.passes(lambda: made(**k))  # noqa: E731
        sink._client = Gated(sink._connected(), gate, "hgetall", wrap={"register_script": script})

    def bury(self, sink: Any) -> None:
        if isinstance(sink._client, Gated):
            sink._client = sink._client._real
        sink.close()

    def close(self) -> None:
        super().close()
        self.client.close()


class ParquetKit(Kit):
    def _new(self) -> Sink[Any]:
        return ParquetSink(self.folder / "out")

    def _table(self) -> Any:
        files = sorted((self.folder / "out").glob("epoch=*/*.parquet"))
        return duckdb.read_parquet([str(f) for f in files], hive_partitioning=False).fetchall() if files else []

    def rows(self) -> Rows:
        return sorted(self._table())

    def wide(self) -> list[Wide]:
        return [msgspec.convert(dict(zip(Wide.__struct_fields__, row, strict=True)), Wide) for row in self._table()]

    def gate(self, sink: Any, gate: Gate) -> None:
        names = ("make", "write", "write_rows", "sync", "rename", "create", "remove", "link", "exchange")
        sink._folders = Gated(Folders(), gate, *names)


class GatedDisk(RealDisk):
    """Only what changes something goes through the gate."""

    gate: Gate | None = None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        gate = super().__getattribute__("gate")
        if gate is None or name not in ("create", "replace", "remove", "sync", "open_append"):
            return found
        wrap = (lambda f: Gated(f, gate, "write", "sync", "truncate")) if name == "open_append" else lambda f: f
        return lambda *a: wrap(gate.passes(lambda: found(*a)))


class GatedLogSink(LogSink[Any]):
    def open(self, event: type[Any]) -> None:
        self.disk = GatedDisk()
        options: dict[str, Any] = {"key": self._key, "partitions": self._partitions, "exist_ok": True}
        self._log = EventLog.create(self.path, event, **options, disk=self.disk, lock_timeout=0.05)


class LogKit(Kit):
    def _new(self) -> Sink[Any]:
        return GatedLogSink(self.folder / "out", partitions=2)

    def rows(self) -> Rows:
        with LogReader(self.folder / "out", Seen) as log:
            return as_rows([one.event for one in log.last(10**6)])

    def wide(self) -> list[Wide]:
        with LogReader(self.folder / "out", Wide) as log:
            return [one.event for one in log.last(10**6)]

    def gate(self, sink: Any, gate: Gate) -> None:
        sink.disk.gate = gate

    def bury(self, sink: Any) -> None:
        sink.disk.gate = None
        for writer in [*sink._log._writers, sink._log._control]:
            writer._abandon()


class KafkaKit(Kit):
    """A topic of its own in a broker that all kits share."""

    server = "kafka"
    _numbers = itertools.count()

    def __init__(self, folder: Path, server: KafkaServer) -> None:
        super().__init__(folder, server)
        self._server = server
        self.topic = f"seen-{next(self._numbers)}"

    def _new(self) -> Sink[Any]:
        return KafkaSink(self._server.address, self.topic, partitions=2, **self.options)

    def delete(self) -> None:
        for topic in (self.topic, self.topic + SUFFIX):
            delete_topic(self._server.address, topic)

    def exists(self) -> bool:
        return any(has_topic(self._server.address, topic) for topic in (self.topic, self.topic + SUFFIX))

    def values(self) -> list[bytes]:
        return [record.value() for record in committed_records(self._server.address, self.topic)]

    def rows(self) -> Rows:
        return as_rows([msgspec.json.decode(value, type=Seen) for value in self.values()])

    def wide(self) -> list[Wide]:
        return [msgspec.json.decode(value, type=Wide) for value in self.values()]

    def gate(self, sink: Any, gate: Gate) -> None:
        names = ("begin_transaction", "produce", "produce_batch", "commit_transaction", "abort_transaction")
        sink._transactions.producer = Gated(sink._transactions.producer, gate, *names)

    def bury(self, sink: Any) -> None:
        if isinstance(sink._transactions.producer, Gated):
            sink._transactions.producer = sink._transactions.producer._real
        sink.close()


class MemoryKit(Kit):
    has_owner = False

    def __init__(self, folder: Path, server: Any) -> None:
        super().__init__(folder, server)
        self._table = Table()

    def _new(self) -> Sink[Any]:
        return MemorySink(self._table)

    def rows(self) -> Rows:
        return as_rows(self._table.rows)

    def wide(self) -> list[Wide]:
        return list(self._table.rows)

    def gate(self, sink: Any, gate: Gate) -> None:
        raise NotImplementedError


KITS: dict[str, type[Kit]] = {
    "sqlite": SqliteKit,
    "sqlite-upsert": SqliteUpsertKit,
    "postgres": PostgresKit,
    "postgres-upsert": PostgresUpsertKit,
    "redis": RedisKit,
    "parquet": ParquetKit,
    "log": LogKit,
    "kafka": KafkaKit,
    "memory": MemoryKit,
}
DURABLE = [name for name in KITS if name != "memory"]
SQL = ["sqlite", "sqlite-upsert", "postgres", "postgres-upsert"]


def cases(names: Iterable[str]) -> list[Any]:
    """Kits as parameters of a test: a broker is not for the quick tier."""
    return [pytest.param(name, marks=slow_of(name)) for name in names]


def slow_of(name: str) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.slow,) if name == "kafka" else ()


def short_locks(monkeypatch: Any) -> None:
    """Do not wait long for a lock that the same test holds."""
    from streamwork.connectors import sqlite

    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(postgres_module, "_BEGIN", postgres_module._BEGIN.replace("'30.0s'", "'50ms'"))
