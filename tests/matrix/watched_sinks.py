"""Sinks that tell the world what they do:

about to write NAME     before it is written to at once
rows written to NAME    in the middle of a write or commit: not committed, not renamed, not all keys
has written NAME        when the write has returned
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sample import Seen
from streamwork import CallableSink, EventLog, LogSink, ParquetSink, PostgresSink, RedisSink, SqliteSink
from streamwork.connectors import redis_scripts
from streamwork.connectors.folders import Folders

if TYPE_CHECKING:
    from matrix.world import World

LOCK_SECONDS = 5.0


def _watch_write(sink: Any, name: str, write: Callable[[], None]) -> None:
    sink._world.passes(f"about to write {name}")
    write()
    sink._world.passes(f"has written {name}")


class WatchedTable(SqliteSink[Any]):
    def __init__(self, world: World, table: str, key: str | None = None) -> None:
        super().__init__(world.database, table, key)
        self._world = world

    def open(self, event: type[Any]) -> None:
        self._world.opened.append(self)
        super().open(event)

    def write(self, batch: pa.RecordBatch) -> None:
        _watch_write(self, self.table, lambda: super(WatchedTable, self).write(batch))

    def _write(self, db: sqlite3.Connection, staged: Iterator[pa.RecordBatch]) -> None:
        super()._write(db, staged)
        self._world.passes(f"rows written to {self.table}")

    def _add(self, db: sqlite3.Connection, table: str, batch: pa.RecordBatch) -> None:
        super()._add(db, table, batch)
        self._world.passes(f"rows written to {table}")


class WatchedPostgres(PostgresSink[Any]):
    def __init__(self, world: World, dsn: str, table: str, key: str | None = None) -> None:
        super().__init__(dsn, table, key)
        self._world = world

    def open(self, event: type[Any]) -> None:
        self._world.opened.append(self)
        super().open(event)

    def write(self, batch: pa.RecordBatch) -> None:
        _watch_write(self, self.table, lambda: super(WatchedPostgres, self).write(batch))

    def _write(self, db: Any, staged: Iterator[pa.RecordBatch]) -> None:
        super()._write(db, staged)
        self._world.passes(f"rows written to {self.table}")

    def _add(self, db: Any, table: str, batch: pa.RecordBatch) -> None:
        super()._add(db, table, batch)
        self._world.passes(f"rows written to {table}")

    def _end(self, db: Any) -> None:
        if self._world.trace[-1:] == [self._world.lose_answer]:
            self._world.lose_answer = ""
            db.execute("COMMIT")  # it comes through, and nobody is told
            db.close()
        super()._end(db)


class WatchedRedis(RedisSink[Any]):
    def __init__(self, world: World, url: str, prefix: str) -> None:
        super().__init__(url, "card", prefix)
        self._world = world

    def open(self, event: type[Any]) -> None:
        self._world.opened.append(self)
        super().open(event)

    def write(self, batch: pa.RecordBatch) -> None:
        _watch_write(self, self.prefix, lambda: super(WatchedRedis, self).write(batch))

    def _call(self, script: str, keys: list[Any], values: list[Any]) -> tuple[str, str]:
        self._world.passes(f"script for {self.prefix}")
        answer = super()._call(script, keys, values)
        if script in (redis_scripts.KEYS, redis_scripts.AT_ONCE):
            self._world.passes(f"rows written to {self.prefix}")
        return answer


class WatchedFolders(Folders):
    """Without the syncs, which the contract suite breaks one by one."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name

    def write(self, path: Path, data: bytes) -> None:
        self._world.passes(f"before create {self._name}")
        path.write_bytes(data)

    def write_rows(self, path: Path, schema: pa.Schema, pieces: Iterator[pa.RecordBatch]) -> None:
        pq.write_table(pa.Table.from_batches(pieces, schema), path)
        self._world.passes(f"rows written to {self._name}")

    def sync(self, folder: Path) -> None: ...

    def rename(self, path: Path, target: Path) -> None:
        self._world.passes(f"before rename {self._name}")
        super().rename(path, target)
        self._world.passes(f"after rename {self._name}")

    def exchange(self, path: Path, target: Path) -> None:
        if not path.name.startswith("epoch="):  # a probe
            super().exchange(path, target)
            return
        self._world.passes(f"before rename {self._name}")
        super().exchange(path, target)
        self._world.passes(f"after rename {self._name}")


class WatchedFiles(ParquetSink[Any]):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.folder / name)
        self._world, self._name = world, name
        self._folders = WatchedFolders(world, name)

    def write(self, batch: pa.RecordBatch) -> None:
        _watch_write(self, self._name, lambda: super(WatchedFiles, self).write(batch))


class WatchedLog(LogSink[Any]):
    def __init__(self, world: World) -> None:
        super().__init__(world.log, key="card", partitions=2)
        self._world = world

    def open(self, event: type[Any]) -> None:
        self.close()
        world, made = self._world, {"key": self._key, "partitions": self._partitions, "exist_ok": True}
        self._log = EventLog.create(
            self.path, event, **made, disk=world.disk, clock=world.clock, lock_timeout=LOCK_SECONDS
        )
        sync = self._log._sync_data

        def synced() -> None:
            sync()
            world.passes("rows written to log")

        self._log._sync_data = synced  # type: ignore[method-assign]

    def write(self, batch: pa.RecordBatch) -> None:
        world = self._world
        world.passes("about to write log")
        try:
            self._log.append(batch)
            world.passes("rows written to log")
        finally:
            if not world.dead:
                self._log.close()
        world.passes("has written log")


class Calling:
    """A function that somebody calls: it appends to a file."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, event: Seen) -> None:
        with (self._world.folder / "calls.jsonl").open("a") as file:
            file.write(json.dumps([event.card, event.number, event.total]) + "\n")
        self._world.passes("rows written to calls")


class WatchedCalls(CallableSink[Any]):
    def __init__(self, world: World) -> None:
        super().__init__(Calling(world))
        self._world = world

    def write(self, batch: pa.RecordBatch) -> None:
        _watch_write(self, "calls", lambda: super(WatchedCalls, self).write(batch))
