"""The events, operators and jobs of ``streamwork bench keyed-state``. Importable by Spark's workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from streamwork.bench.epochs import DiscardSink
from streamwork.components import BatchCollector, Event, KeyedCollector, KeyedColumns, KeyedOperator, Record
from streamwork.connectors import LogSource
from streamwork.job import Job

COUNTS = "counts"
PARALLELISM = 2


class Use(Event, frozen=True):
    id: int
    card: str
    amount: float


class Usage(Event, frozen=True):
    card: str
    count: int
    total: float


class Count(Record):
    count: int = 0
    total: float = 0.0


class Counting(KeyedOperator[Use, Count, Usage]):
    """How often and how much each card was used so far: one event out for each event in."""

    def apply(self, event: Use, state: Count, collector: KeyedCollector) -> None:
        state.count += 1
        state.total += event.amount
        collector.emit(Usage(event.card, state.count, state.total))


class CountingColumns(KeyedOperator[Use, Count, Usage]):
    """The same events, on whole columns."""

    def apply_batch(self, batch: pa.RecordBatch, state: KeyedColumns, collector: BatchCollector) -> None:
        codes, amounts = state.codes, batch["amount"].to_numpy()
        counts, totals = state["count"], state["total"]
        of_key = pd.Series(amounts, copy=False).groupby(codes, sort=False)
        so_far = counts[codes] + of_key.cumcount().to_numpy() + 1
        collector.emit_batch(
            pa.record_batch(
                {"card": batch["card"], "count": so_far, "total": totals[codes] + of_key.cumsum().to_numpy()}
            )
        )
        state["count"] = counts + np.bincount(codes, minlength=len(state))
        state["total"] = totals + np.bincount(codes, amounts, len(state))


def build(name: str, operator: KeyedOperator[Any, Any, Any], log: Path, ledger: Path) -> tuple[Job, DiscardSink]:
    job, sink = Job(name, checkpoint_every=0, parallelism=PARALLELISM), DiscardSink(ledger)
    uses = job.source(LogSource(log, Use, max_events=1 << 40), id="uses")
    uses.apply(operator, key="card", id=COUNTS).sink(sink, id="usage")
    return job, sink
