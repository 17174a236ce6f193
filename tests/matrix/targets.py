"""The sinks of the matrix, and how their readers see them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import redis

from matrix.watched_sinks import WatchedCalls, WatchedFiles, WatchedLog, WatchedPostgres, WatchedRedis, WatchedTable
from sample import Seen
from streamwork.log import LogReader

if TYPE_CHECKING:
    from matrix.world import World

Row = tuple[str, int, int]
Ledger = tuple[dict[str, int], str]  # position, hash of the manifest
servers: dict[str, Any] = {}
"""What gives a server by the name of its fixture; filled in by whoever has servers."""


def server(name: str) -> Any:
    return servers["find"](name)


class Target(ABC):
    """One sink of a world."""

    keyed = False
    previews = False
    exactly_once = True
    whole = True  # readers see an epoch at once

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    @abstractmethod
    def sink(self) -> Any: ...

    @abstractmethod
    def rows(self) -> list[Row]:
        """What readers see; without a key in the order in which it was written, as far as cards are concerned."""

    def ledger(self) -> Ledger:
        return {}, ""

    def dirty(self) -> list[Row]:
        """What readers see who would rather see too much than late."""
        raise NotImplementedError

    def previewed(self) -> list[Row]:
        raise NotImplementedError

    def keep_copy(self) -> Callable[[], None]:
        raise NotImplementedError


def _copied(world: World, target: Path) -> Callable[[], None]:
    kept = world.folder / f"kept-{world.token()}"
    shutil.copytree(target, kept) if target.is_dir() else shutil.copy(target, kept)

    def bring_back() -> None:
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        shutil.copytree(kept, target) if kept.is_dir() else shutil.copy(kept, target)

    return bring_back


class SqlTarget(Target):
    previews = True
    order = ""

    @abstractmethod
    def query(self, text: str, values: Sequence[Any] = ()) -> list[Any]: ...

    @abstractmethod
    def exists(self, name: str) -> bool: ...

    def rows(self) -> list[Row]:
        return self.query(f"SELECT card, number, total FROM {self.name} ORDER BY {self.order}")

    def ledger(self) -> Ledger:
        found = self.query(f"SELECT position, manifest_sha256 FROM streamwork_ledger WHERE sink = '{self.name}'")
        return (json.loads(found[0][0] or "{}"), found[0][1]) if found else ({}, "")

    def dirty(self) -> list[Row]:
        name = f"{self.name}__dirty"
        return self.query(f"SELECT card, number, total FROM {name}") if self.exists(name) else self.rows()

    def previewed(self) -> list[Row]:
        name = f"{self.name}__preview"
        return self.query(f"SELECT card, number, total FROM {name}") if self.exists(name) else []


class SqliteTarget(SqlTarget):
    order = "rowid"

    def sink(self) -> Any:
        return WatchedTable(self.world, self.name, "card" if self.keyed else None)

    def query(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        with closing(sqlite3.connect(self.world.database)) as db:
            return db.execute(text, values).fetchall()

    def exists(self, name: str) -> bool:
        return bool(self.query("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)))

    def keep_copy(self) -> Callable[[], None]:
        return _copied(self.world, self.world.database)


class KeyedSqliteTarget(SqliteTarget):
    keyed = True


class PostgresTarget(SqlTarget):
    """In a schema of the world's own."""

    order = "ctid"  # nothing is ever deleted, so this is how rows came
    _schemas = iter(range(10**9))

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        if not world.schema:
            world.schema = f"world_{next(self._schemas)}"
            self._execute(f"CREATE SCHEMA {world.schema}")

    @property
    def dsn(self) -> str:
        return f"{server('postgres').dsn}&options=-csearch_path%3D{self.world.schema}"

    def sink(self) -> Any:
        return WatchedPostgres(self.world, self.dsn, self.name, "card" if self.keyed else None)

    def query(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        return _reader(server("postgres").dsn, self.world.schema, text).fetchall()

    def _execute(self, text: str) -> None:
        _reader(server("postgres").dsn, "public", text)

    def exists(self, name: str) -> bool:
        return self.query(f"SELECT to_regclass('{name}')")[0][0] is not None

    def keep_copy(self) -> Callable[[], None]:
        mine, kept = self.world.schema, f"world_{next(self._schemas)}"
        tables = [self.name, "streamwork_ledger", "streamwork_owners"]
        self._execute(f"CREATE SCHEMA {kept}")
        for table in tables:
            self._execute(f"CREATE TABLE {kept}.{table} AS TABLE {mine}.{table}")

        def bring_back() -> None:
            for table in tables:
                self._execute(f"TRUNCATE {mine}.{table}")
                self._execute(f"INSERT INTO {mine}.{table} SELECT * FROM {kept}.{table}")

        return bring_back


_connections: dict[str, Any] = {}


def _reader(dsn: str, schema: str, text: str) -> Any:
    """One connection for all readers: it is quicker."""
    for _ in range(2):
        db = _connections.get(dsn)
        try:
            if db is None or db.closed:
                db = _connections[dsn] = psycopg.connect(dsn, autocommit=True)
            db.execute(f"SET search_path = {schema}")
            return db.execute(text)  # type: ignore[arg-type]
        except psycopg.OperationalError:  # the server has been restarted
            _connections.pop(dsn, None)
    raise AssertionError("the server does not answer")


def close_readers() -> None:
    for db in _connections.values():
        db.close()
    _connections.clear()


class KeyedPostgresTarget(PostgresTarget):
    keyed = True


class RedisTarget(Target):
    """The server has one world at a time."""

    keyed = True
    whole = False

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        with closing(self._client()) as client:
            client.flushall()

    def _client(self) -> Any:
        return redis.Redis.from_url(server("redis_server").url)

    def sink(self) -> Any:
        return WatchedRedis(self.world, server("redis_server").url, self.name)

    def rows(self) -> list[Row]:
        with closing(self._client()) as client:
            found = [client.hmget(name, "card", "number", "total") for name in client.scan_iter(f"{self.name}:*")]
        return [(card.decode(), int(number), int(total)) for card, number, total in found]

    def ledger(self) -> Ledger:
        with closing(self._client()) as client:
            row = client.hgetall(f"streamwork_ledger:{self.world.uid}:{self.name}")
        return json.loads(row.get(b"position", b"{}")), row.get(b"manifest_sha256", b"").decode()

    def keep_copy(self) -> Callable[[], None]:
        with closing(self._client()) as client:
            kept = {name: client.dump(name) for name in client.scan_iter("*")}

        def bring_back() -> None:
            with closing(self._client()) as client:
                client.flushall()
                for name, value in kept.items():
                    client.restore(name, 0, value)

        return bring_back


class LogTarget(Target):
    def sink(self) -> Any:
        return WatchedLog(self.world)

    def rows(self) -> list[Row]:
        with LogReader(self.world.log, Seen) as reader:
            return [(one.event.card, one.event.number, one.event.total) for one in reader.last(10**6)]

    def ledger(self) -> Ledger:
        with LogReader(self.world.log, Seen) as reader:
            row = reader.ledger(self.world.uid, self.name)
        return (row.position or {}, row.manifest_sha256) if row is not None else ({}, "")

    def keep_copy(self) -> Callable[[], None]:
        return _copied(self.world, self.world.log)


class FilesTarget(Target):
    def sink(self) -> Any:
        return WatchedFiles(self.world, self.name)

    @property
    def _folder(self) -> Path:
        return self.world.folder / self.name

    def _epochs(self) -> list[Path]:
        return sorted(self._folder.glob("epoch=*"), key=lambda path: int(path.name.partition("=")[2]))

    def rows(self) -> list[Row]:
        found = []
        for epoch in self._epochs():
            for path in sorted(epoch.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns):
                table = pq.ParquetFile(path).read().to_pydict()
                found += list(zip(table["card"], table["number"], table["total"], strict=True))
        return found

    def ledger(self) -> Ledger:
        paths = [path / "_ledger.json" for path in self._epochs() if path.name != "epoch=0"]
        if not paths:
            return {}, ""
        row = json.loads(paths[-1].read_bytes())
        return row["position"], row["manifest_sha256"]

    def keep_copy(self) -> Callable[[], None]:
        return _copied(self.world, self._folder)


class CallsTarget(Target):
    exactly_once = False

    def sink(self) -> Any:
        return WatchedCalls(self.world)

    def rows(self) -> list[Row]:
        path = self.world.folder / "calls.jsonl"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []  # type: ignore[misc]


TARGETS: dict[str, type[Target]] = {
    "journal": SqliteTarget,
    "latest": KeyedSqliteTarget,
    "log": LogTarget,
    "files": FilesTarget,
    "items": PostgresTarget,
    "cards": KeyedPostgresTarget,
    "hashes": RedisTarget,
    "calls": CallsTarget,
}
_KINDS = {"latest": "journal", "cards": "items"}


def kind_of(sinks: tuple[str, ...]) -> str:
    """Sinks of one kind have one implementation: with a key or without one; or a job has several sinks."""
    return "several" if len(sinks) > 1 else _KINDS.get(sinks[0], sinks[0])


SINKS: dict[str, tuple[str, ...]] = {
    "SQLite": ("journal",),
    "SQLite, upsert": ("latest",),
    "log": ("log",),
    "Parquet": ("files",),
    "PostgreSQL": ("items",),
    "PostgreSQL, upsert": ("cards",),
    "Redis": ("hashes",),
    "SQLite + log": ("journal", "log"),
    "log + SQLite, upsert": ("log", "latest"),
    "PostgreSQL + Redis": ("items", "hashes"),
}
"""The sinks of the jobs that are tried, in the order of their commits."""
LOCAL = {name: sinks for name, sinks in SINKS.items() if set(sinks) <= {"journal", "latest", "log"}}
"""Those whose targets are files, which a world can be forked with."""
AT_ONCE = {**{name: SINKS[name] for name in SINKS if name != "log + SQLite, upsert"}, "function": ("calls",)}
"""Those that are tried where rows are written at once."""
PREVIEWED = {name: sinks for name, sinks in SINKS.items() if all(TARGETS[sink].previews for sink in sinks)}
