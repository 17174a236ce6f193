"""A small job for tests, importable by Spark's workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamwork import Event, Job, KeyedOperator, ListSource, Operator, Record, SqliteSink
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run
from streamwork.run.watcher import Watcher


class Payment(Event):
    card: str
    amount: int


class Seen(Event):
    card: str
    number: int
    total: int


class Sums(Record):
    number: int = 0
    total: int = 0


class Summing(KeyedOperator[Payment, Sums, Seen]):
    """Counts and sums per card; a negative amount makes it raise."""

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        if event.amount < 0:
            raise ValueError("an amount below zero")
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, state.total))


class Doubling(Operator[Payment, Payment]):
    def apply(self, event: Payment, collector: Any) -> None:
        if event.amount:
            collector.emit(Payment(event.card, 2 * event.amount))


def payments(count: int, cards: int = 7) -> list[Payment]:
    return [Payment(f"card-{i * 31 % cards}", i % 50) for i in range(count)]


def summing_job(
    events: Sequence[Payment], database: Path, max_events: int = 10, sink: type[SqliteSink[Any]] = SqliteSink
) -> Job:
    job = Job("summing", checkpoint_every=0)
    seen = job.source(ListSource(events, Payment, max_events=max_events), id="payments").apply(
        Summing(), key="card", id="sums"
    )
    seen.sink(sink(database, "journal"), id="journal")
    seen.sink(sink(database, "latest", key="card"), id="latest")
    return job


def expected_journal(events: Sequence[Payment]) -> list[tuple[str, int, int]]:
    state: dict[str, tuple[int, int]] = {}
    rows = []
    for event in events:
        number, total = state.get(event.card, (0, 0))
        state[event.card] = number + 1, total + event.amount
        rows.append((event.card, *state[event.card]))
    return rows


def run_job(
    job: Job, root: Path, mode: str = "local", watcher: Watcher | None = None, restart: bool = False, **options: Any
) -> Outcome:
    """Without restarts, unless asked for: what fails is to be seen at once."""
    return run(job, RunOptions(mode=Mode(mode), root=root, until_caught_up=True, restart=restart, **options), watcher)
