"""Jobs that read DataFrames of Spark's, importable by its workers."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamwork import DataFrameSource, Digits, Event, Job, KeyedOperator, Operator, Record, SqliteSink, field

KINDS = ("view", "click", "buy", "view")


class View(Event):
    id: int
    kind: str
    user: str
    amount: float | None


class Tally(Record):
    number: int = 0
    last: int = -1


class Count(Event):
    user: str
    number: int
    id: int


class Counting(KeyedOperator[View, Tally, Count]):
    """Counts by user; raises where an event comes out of order."""

    def apply(self, event: View, state: Tally, collector: Any) -> None:
        if event.id <= state.last:
            raise ValueError(f"{event.id} came after {state.last}")
        state.number += 1
        state.last = event.id
        collector.emit(Count(event.user, state.number, event.id))


class Passing(Operator[View, View]):
    def apply(self, event: View, collector: Any) -> None:
        collector.emit(event)


def is_any(event: View) -> bool:
    return True


class Priced(Event):
    price: Annotated[Decimal, Digits(10, 2)]
    kind: str


class Tagged(Event):
    kind: str
    tags: list[str]


class Timed(Event):
    kind: str
    at: datetime


def view(number: int) -> View:
    amount = None if number % 5 == 0 else number / 2
    return View(number, KINDS[number % 4], f"u{number % 3}", amount)


def write_views(folder: Path, start: int, end: int, step: int = 1) -> None:
    """One more file; the newest rows first in it, because order in a file means nothing."""
    folder.mkdir(exist_ok=True)
    rows = [view(number) for number in reversed(range(start, end, step))]
    columns = {name: [getattr(row, name) for row in rows] for name in ("id", "kind", "user", "amount")}
    pq.write_table(pa.table(columns), folder / f"{start:06d}.parquet", row_group_size=20)


def views(folder: Path, max_events: int = 1_000_000, **options: Any) -> DataFrameSource[View]:
    return DataFrameSource(
        lambda spark: spark.read.schema("id long, kind string, user string, amount double").parquet(str(folder)),
        View,
        offset="id",
        max_events=max_events,
        **options,
    )


def counting_job(source: Any, folder: Path, parallelism: int = 1) -> Job:
    """Two filters, of which one lets nulls out, in front of a count by user."""
    job = Job("viewed", checkpoint_every=0)
    seen = job.source(source, id="views").where(field("kind") == "view", id="only-views")
    paid = seen.where(field("amount") >= 1, id="paid")
    counts = paid.apply(Counting(), key="user", id="counts", parallelism=parallelism)
    counts.sink(SqliteSink(folder / "out.db", "counts"), id="out")
    return job


def expected_counts(start: int, end: int, step: int = 1) -> list[tuple[str, int, int]]:
    numbers: dict[str, int] = {}
    found = []
    for one in map(view, range(start, end, step)):
        if one.kind == "view" and one.amount is not None and one.amount >= 1:
            numbers[one.user] = numbers.get(one.user, 0) + 1
            found.append((one.user, numbers[one.user], one.id))
    return found
