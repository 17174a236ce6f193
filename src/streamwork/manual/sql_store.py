"""`SqlStore`: what SQLite and PostgreSQL share. Two tables: one row per instance, one row per record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from streamwork.manual.store import Changes, ManualStore, Saved, Seat, Stored, fenced, other_instances

INSTANCES = "streamwork_manual_instances"
RECORDS = "streamwork_manual_records"


class SqlStore(ManualStore):
    """Subclasses say how a transaction is made, and how parameters and bytes are written."""

    mark: str
    blob: str

    def __init__(self, job: str) -> None:
        self.job = job

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """A transaction with an `execute` and an `executemany`, which creates the tables if they are missing."""

    def begin(self, component: str, instance: int, instances: int) -> tuple[Seat, Saved]:
        place = (self.job, component, instance)
        with self._transaction() as db:
            found = db.execute(
                self._sql(
                    f"INSERT INTO {INSTANCES} AS old (job, component, instance, instances, fence, offsets) "
                    "VALUES (?, ?, ?, ?, 1, '{}') ON CONFLICT (job, component, instance) "
                    "DO UPDATE SET fence = old.fence + 1 RETURNING fence, instances, offsets"
                ),
                (*place, instances),
            ).fetchone()
            fence, stored, offsets = found
            if stored != instances:
                raise other_instances(component, stored, instances)
            rows = db.execute(
                self._sql(f"SELECT name, content FROM {RECORDS} WHERE job = ? AND component = ? AND instance = ?"),
                place,
            ).fetchall()
        records = {bytes(name): bytes(content) for name, content in rows}
        return Seat(component, instance, fence), Saved(msgspec.json.decode(offsets, type=dict[str, int]), records)

    def save(self, seat: Seat, offsets: Mapping[str, int], changes: Changes) -> None:
        place = (self.job, seat.component, seat.instance)
        written = [(*place, name, content) for name, content in changes.items() if content is not None]
        removed = [(*place, name) for name, content in changes.items() if content is None]
        with self._transaction() as db:
            changed = db.execute(
                self._sql(
                    f"UPDATE {INSTANCES} SET offsets = ? WHERE job = ? AND component = ? AND instance = ? AND fence = ?"
                ),
                (msgspec.json.encode(dict(offsets)).decode(), *place, seat.fence),
            ).rowcount
            if not changed:
                raise fenced(seat)
            if written:
                db.executemany(
                    self._sql(
                        f"INSERT INTO {RECORDS} (job, component, instance, name, content) VALUES (?, ?, ?, ?, ?) "
                        "ON CONFLICT (job, component, instance, name) DO UPDATE SET content = excluded.content"
                    ),
                    written,
                )
            if removed:
                db.executemany(
                    self._sql(f"DELETE FROM {RECORDS} WHERE job = ? AND component = ? AND instance = ? AND name = ?"),
                    removed,
                )

    def all(self) -> list[Stored]:
        with self._transaction() as db:
            rows = db.execute(
                self._sql(
                    f"SELECT component, instance, instances, fence, offsets FROM {INSTANCES} WHERE job = ? "
                    "ORDER BY component, instance"
                ),
                (self.job,),
            ).fetchall()
        return [
            Stored(component, instance, instances, fence, msgspec.json.decode(offsets, type=dict[str, int]))
            for component, instance, instances, fence, offsets in rows
        ]

    def tables(self) -> tuple[str, str]:
        return (
            f"CREATE TABLE IF NOT EXISTS {INSTANCES} (job TEXT, component TEXT, instance INTEGER, instances INTEGER, "
            "fence INTEGER, offsets TEXT, PRIMARY KEY (job, component, instance))",
            f"CREATE TABLE IF NOT EXISTS {RECORDS} (job TEXT, component TEXT, instance INTEGER, name {self.blob}, "
            f"content {self.blob}, PRIMARY KEY (job, component, instance, name))",
        )

    def _sql(self, text: str) -> str:
        return text.replace("?", self.mark)
