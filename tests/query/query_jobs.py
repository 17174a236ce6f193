"""Jobs whose state is asked, and the fold of their input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamwork import Event, Job, KeyedOperator, ListSource, Record, SqliteSink, StatefulOperator

CHECKPOINT_EVENTS = 10


class Sale(Event):
    shop: str
    order: int | None
    amount: int


class Sums(Record):
    count: int = 0
    total: int = 0
    last: list[int] = []


class Total(Event):
    shop: str
    total: int


class Summing(KeyedOperator[Sale, Sums, Total]):
    """An amount of 0 makes it forget the key."""

    def apply(self, event: Sale, state: Sums, collector: Any) -> None:
        if not event.amount:
            collector.clear_state()
            return
        state.count += 1
        state.total += event.amount
        state.last = [*state.last, event.amount][-3:]
        collector.emit(Total(event.shop, state.total))


class Seen(Record):
    events: int = 0
    last: str | None = None


class Watching(StatefulOperator[Sale, Seen, Sale]):
    def setup_instance(self, instance: Any, state: Seen | None) -> None:
        self._state = state or Seen()

    def apply(self, event: Sale, collector: Any) -> None:
        self._state.events += 1
        self._state.last = event.shop
        collector.emit(event)

    def get_state(self) -> Seen:
        return self._state


def sales(numbers: Sequence[int], shops: int = 11) -> list[Sale]:
    """Sales made of random numbers."""
    return [Sale(f"shop-{n % shops:02d}", n // shops % 3 or None, n // 40 % 5) for n in numbers]


def sales_job(events: Sequence[Sale], folder: Path, parallelism: int = 1) -> Job:
    job = Job("sales", checkpoint_every=0, parallelism=parallelism)
    source = job.source(ListSource(events, Sale, max_events=CHECKPOINT_EVENTS), id="sales")
    seen = source.apply(Watching(), id="watching")
    seen.apply(Summing(), key="shop", id="by-shop").sink(SqliteSink(folder / "a.db", "by_shop"), id="a")
    seen.apply(Summing(), key=["shop", "order"], id="by-order").sink(SqliteSink(folder / "b.db", "by_order"), id="b")
    return job


def fold(events: Sequence[Sale], key: Any) -> dict[Any, tuple[int, int, tuple[int, ...]]]:
    """Key -> (count, total, last), of all that were not forgotten."""
    found: dict[Any, tuple[int, int, tuple[int, ...]]] = {}
    for event in events:
        if not event.amount:
            found.pop(key(event), None)
        else:
            count, total, last = found.get(key(event), (0, 0, ()))
            found[key(event)] = count + 1, total + event.amount, (*last, event.amount)[-3:]
    return found


def by_shop(event: Sale) -> str:
    return event.shop


def by_order(event: Sale) -> tuple[str, int | None]:
    return event.shop, event.order


def values(record: Any) -> tuple[int, int, tuple[int, ...]]:
    return record.count, record.total, tuple(record.last)


def in_order(key: Any) -> Any:
    """Nulls are behind all values."""
    parts = key if isinstance(key, tuple) else (key,)
    return [(part is None, part or 0 if part is None else part) for part in parts]
