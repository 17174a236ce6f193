"""Operators that need something that is down for a while, importable by Spark's workers."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from streamwork import Event, KeyedOperator, Operator, Record, StatefulOperator


class Item(Event):
    name: str
    card: str = "a"
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class Done(Event):
    name: str
    number: int = 0


class Count(Record):
    number: int = 0


class Outage:
    """Something elsewhere that does not answer: some names so many times."""

    left: ClassVar[dict[str, int]] = {}
    log: ClassVar[list[str]] = []
    error: ClassVar[type[Exception]] = ConnectionError

    @classmethod
    def begin(cls, left: dict[str, int] | None = None, error: type[Exception] = ConnectionError) -> None:
        cls.left, cls.log, cls.error = dict(left or {}), [], error

    @classmethod
    def ask(cls, name: str) -> None:
        if cls.left.get(name, 0):
            cls.left[name] -= 1
            cls.log.append(f"{name} failed")
            raise cls.error("no answer")
        cls.log.append(name)


class LookUp(Operator[Item, Done]):
    def apply(self, event: Item, collector: Any) -> None:
        collector.emit(Done("half done"))  # must not count if the call fails
        Outage.ask(event.name)
        collector.emit(Done(event.name))


class Counting(StatefulOperator[Item, Count, Done]):
    """Has one record for all; connects when it is set up."""

    set_ups: ClassVar[int] = 0

    def setup_instance(self, instance: int, state: Count | None) -> None:
        Counting.set_ups += 1
        self.number = 0 if state is None else state.number

    def apply(self, event: Item, collector: Any) -> None:
        self.number += 1
        collector.emit(Done("half done", self.number))
        Outage.ask(event.name)
        collector.emit(Done(event.name, self.number))

    def get_state(self) -> Count:
        return Count(self.number)


class PerCard(KeyedOperator[Item, Count, Done]):
    def apply(self, event: Item, state: Count, collector: Any) -> None:
        state.number += 1
        collector.emit(Done("half done", state.number))
        Outage.ask(event.name)
        collector.emit(Done(event.name, state.number))


class Bulk(Operator[Item, Done]):
    """Whole columns; fails as its first event does."""

    def apply_batch(self, batch: pa.RecordBatch, collector: Any) -> None:
        names = batch["name"].to_pylist()
        collector.emit_batch(pa.record_batch({"name": ["half done"], "number": pa.array([0], pa.int64())}))
        Outage.ask(names[0])
        collector.emit_batch(pa.record_batch({"name": names, "number": pa.array([0] * len(names), pa.int64())}))


class WhileFile(Operator[Item, Done]):
    """Is down while there is a file, and says in another one that it was asked."""

    def __init__(self, file: Path, name: str = "x") -> None:
        self.file, self.name = file, name

    def apply(self, event: Item, collector: Any) -> None:
        if event.name == self.name and self.file.exists():
            with self.file.with_suffix(".asked").open("a") as asked:
                asked.write(f"{time.time()}\n")
            raise ConnectionError("no answer")
        collector.emit(Done(event.name))
