"""A job of live mode whose state is asked behind its checkpoints. Importable by Spark's workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from query.query_jobs import Sale, Summing, Watching
from streamwork import EventLog, Job, KeyedOperator, LogSource, Record, SqliteSink


class Number(Record):
    count: int = 0


class CountingColumns(KeyedOperator[Sale, Number, Sale]):
    """By columns."""

    def apply_batch(self, batch: Any, state: Any, collector: Any) -> None:
        state["count"] = state["count"] + np.bincount(state.codes, minlength=len(state))


def live_sales(folder: Path, parallelism: int = 1, checkpoint_every: str = "50ms") -> Job:
    job = Job("sales", checkpoint_every=checkpoint_every, parallelism=parallelism)
    source = job.source(LogSource(folder / "log", Sale), id="sales")
    seen = source.apply(Watching(), id="watching", parallelism=1)
    seen.apply(Summing(), key="shop", id="by-shop").sink(SqliteSink(folder / "a.db", "by_shop"), id="a")
    seen.apply(CountingColumns(), key="shop", id="numbers").sink(SqliteSink(folder / "b.db", "numbers"), id="b")
    return job


def sales_log(folder: Path) -> EventLog[Sale]:
    return EventLog.create(folder / "log", Sale, key="shop", partitions=2, exist_ok=True)
