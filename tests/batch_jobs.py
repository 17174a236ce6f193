"""One operator written twice, event by event and on whole columns. Importable by Spark's workers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from streamwork import (
    BatchCollector,
    Event,
    EventLog,
    Job,
    KeyedCollector,
    KeyedColumns,
    KeyedOperator,
    ListSource,
    LogSource,
    Record,
    SqliteSink,
)
from streamwork.components import OffsetSource

START = datetime(2026, 1, 1, tzinfo=UTC)
LARGE = 40


class Sale(Event):
    shop: str
    till: int | None
    amount: int
    at: datetime


class Sold(Event):
    shop: str
    till: int | None
    number: int
    total: float


class Alarm(Event):
    shop: str
    amount: int


class Book(Record):
    """One field of each kind that can be a column."""

    number: int = 0
    total: float = 0.0
    seen_large: bool = False
    last_till: str = "none"
    most: int | None = None
    at: datetime = START


class ByEvent(KeyedOperator[Sale, Book, Sold]):
    channels = {"alarms": Alarm}

    def apply(self, event: Sale, state: Book, collector: KeyedCollector) -> None:
        state.number += 1
        state.total += event.amount
        state.seen_large = state.seen_large or event.amount >= LARGE
        state.last_till = str(event.till)
        state.most = event.amount if state.most is None else max(state.most, event.amount)
        state.at = max(state.at, event.at)
        collector.emit(Sold(event.shop, event.till, state.number, state.total))
        if event.amount >= LARGE:
            collector.emit(Alarm(event.shop, event.amount), "alarms")


class ByBatch(KeyedOperator[Sale, Book, Sold]):
    channels = {"alarms": Alarm}

    def apply_batch(self, batch: pa.RecordBatch, state: KeyedColumns, collector: BatchCollector) -> None:
        codes, amounts = state.codes, batch["amount"].to_numpy()
        by_key = pd.Series(amounts).groupby(codes)
        numbers = state["number"][codes] + by_key.cumcount().to_numpy() + 1
        totals = state["total"][codes] + by_key.cumsum().to_numpy()
        columns = {"shop": batch["shop"], "till": batch["till"], "number": numbers, "total": totals}
        collector.emit_batch(pa.record_batch(columns))
        large = amounts >= LARGE
        for shop, amount in zip(batch["shop"].filter(large).to_pylist(), amounts[large].tolist(), strict=True):
            collector.emit(Alarm(shop, amount), "alarms")
        state["number"] += np.bincount(codes, minlength=len(state))
        state["total"] += np.bincount(codes, amounts, len(state))
        state["seen_large"] |= np.bincount(codes, large, len(state)) > 0
        last = np.empty(len(state), np.int64)
        last[codes] = np.arange(len(codes))
        state["last_till"] = np.array([str(till) for till in batch["till"].take(last).to_pylist()], object)
        before = state["most"]
        most = by_key.max().to_numpy()
        state["most"] = [int(new) if old is None else max(old, int(new)) for old, new in zip(before, most, strict=True)]
        at = state["at"].copy()
        np.maximum.at(at, codes, batch["at"].to_numpy(zero_copy_only=False))
        state["at"] = at


class Forgetful(ByBatch):
    """Does not put its totals back."""

    def apply_batch(self, batch: pa.RecordBatch, state: KeyedColumns, collector: BatchCollector) -> None:
        totals = state["total"]
        super().apply_batch(batch, state, collector)
        state["total"] = totals


def sales(count: int, seed: int) -> list[Sale]:
    rng = random.Random(seed)
    shops, tills = [f"shop-{n}" for n in range(rng.choice((2, 9)))], [None, 1, 2]
    return [
        Sale(rng.choice(shops), rng.choice(tills), rng.randint(0, 50), START + timedelta(seconds=rng.randint(0, 99)))
        for _ in range(count)
    ]


def sales_job(
    events: Sequence[Sale],
    folder: Path,
    operator: Any,
    key: Any,
    max_events: int,
    parallelism: int = 1,
    log: bool = False,
) -> Job:
    source: OffsetSource[Sale] = ListSource(events, Sale, max_events=max_events)
    if log:
        with EventLog.create(folder / "log", Sale, key="shop", partitions=2, exist_ok=True) as made:
            for start in range(sum(made.ends().values()), len(events), 7):
                made.append(events[start : start + 7])
        source = LogSource(folder / "log", Sale, max_events=max_events)
    job = Job("sales", checkpoint_every=0, parallelism=parallelism)
    sold = job.source(source, id="sales").apply(operator, key=key, id="books")
    sold.sink(SqliteSink(folder / "out.db", "sold"), id="sold")
    sold.channel("alarms").sink(SqliteSink(folder / "out.db", "alarms"), id="alarms")
    return job
