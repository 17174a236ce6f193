"""A job whose state is kept by hand, and what it must come to."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from streamwork import Event, Job, KeyedCollector, KeyedOperator, ListSource, Record
from streamwork.components import OffsetSource
from streamwork.manual import ManualStore, Positioned, RewindingSource, by_hand
from streamwork.testing.memory import MemorySink, Table


class Payment(Positioned, frozen=True):
    number: int
    card: str
    amount: int


class Total(Event):
    card: str
    number: int
    count: int
    total: int


class Totals(Record):
    count: int = 0
    total: int = 0


class PerCard(KeyedOperator[Payment, Totals, Total]):
    """Amounts below zero are refused; zero closes the card."""

    def apply(self, event: Payment, state: Totals, collector: KeyedCollector) -> None:
        state.count += 1
        state.total += event.amount
        if event.amount < 0:
            collector.fail("negative")
        if event.amount == 0:
            collector.clear_state()
        collector.emit(Total(event.card, event.number, state.count, state.total))


def payments(count: int, seed: int, cards: int = 5) -> list[Payment]:
    rng = random.Random(seed)
    return [Payment(n, f"c{rng.randrange(cards)}", rng.choice([-1, 0, *range(1, 9)])) for n in range(count)]


def expected(events: list[Payment]) -> list[Total]:
    """What a run without failure emits."""
    found, states = [], dict[str, Totals]()
    for event in events:
        if event.amount < 0:
            continue
        state = states.setdefault(event.card, Totals())
        state.count, state.total = state.count + 1, state.total + event.amount
        found.append(Total(event.card, event.number, state.count, state.total))
        if event.amount == 0:
            del states[event.card]
    return found


def build(
    source: OffsetSource[Payment] | list[Payment],
    store: ManualStore,
    *,
    rewind: int | str = 50,
    every: float = 0,
    source_every: float = 0,
    parallelism: int = 1,
    on_gap: Any = "refuse",
    clock: Callable[[], float] = lambda: 0.0,
    table: Table | None = None,
) -> Job:
    job = Job("by-hand", semantics="at-most-once")
    given = ListSource(source, event=Payment) if isinstance(source, list) else source
    rewinding = RewindingSource(given, store, rewind=rewind, every=source_every, on_gap=on_gap, clock=clock)
    stream = job.source(rewinding, id="payments")
    totals = by_hand(
        stream, PerCard(), key="card", store=store, id="per-card", every=every, parallelism=parallelism, clock=clock
    )
    totals.sink(MemorySink(table or Table()), id="out")
    return job
