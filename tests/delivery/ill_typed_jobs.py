"""Operators whose output or state does not fit, importable by Spark's workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sample import Payment
from streamwork import Job, KeyedOperator, ListSource, Operator, Record, SqliteSink


class Kept(Record):
    total: int = 0


class Emitting(Operator[Payment, Payment]):
    def apply(self, event: Payment, collector: Any) -> None:
        collector.emit(Payment(event.card, "3") if event.amount == 3 else event)  # type: ignore[arg-type]


class Keeping(KeyedOperator[Payment, Kept, Payment]):
    def apply(self, event: Payment, state: Kept, collector: Any) -> None:
        state.total = 2**63 if event.amount == 6 else state.total + 1
        collector.emit(event)


def spoiling_job(folder: Path) -> Job:
    job = Job("spoiling", checkpoint_every=0, restart=None)
    events = [Payment(f"card-{n % 3}", n) for n in range(1, 8)]
    emitted = job.source(ListSource(events, Payment), id="payments").apply(Emitting(), id="emitting")
    kept = emitted.apply(Keeping(), key="card", id="keeping", parallelism=2)
    kept.sink(SqliteSink(folder / "out.db", "out"), id="out")
    return job
