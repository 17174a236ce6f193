"""The job whose roots are kept in this folder: state of every kind, with the types that a record can have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from streamwork import (
    Digits,
    Event,
    Fixed,
    Job,
    JsonLines,
    KeyedOperator,
    Record,
    SqliteSink,
    StatefulOperator,
    count,
    sum_of,
)


class Payment(Event):
    card: str
    shop: int
    cents: int
    at: datetime


class Total(Event):
    card: str
    shop: int
    cents: int
    largest: int


class Seen(Event):
    number: int


class Ended(Event):
    card: str
    window_start: datetime
    payments: int
    cents: int


class Kept(Record):
    cents: int = 0
    euros: Annotated[Decimal, Digits(12, 2)] = Decimal(0)
    last: datetime | None = None
    amounts: list[int] = []
    shops: dict[str, int] = {}
    text: str = ""
    rate: float = 0.0


class Number(Record):
    number: int = 0


class PerCard(KeyedOperator[Payment, Kept, Total]):
    def apply(self, event: Payment, state: Kept, collector: Any) -> None:
        state.cents += event.cents
        state.euros = Decimal(state.cents) / 100
        state.last = event.at
        state.amounts = [*state.amounts, event.cents][-3:]
        state.shops[str(event.shop)] = state.shops.get(str(event.shop), 0) + 1
        collector.set_timer(event.at + timedelta(hours=1))
        collector.emit(Total(event.card, event.shop, state.cents, max(state.amounts)))

    def on_timer(self, key: Any, at: datetime, state: Kept, collector: Any) -> None:
        state.text += "."


class Counting(StatefulOperator[Total, Number, Seen]):
    def setup_instance(self, instance: Any, state: Number | None) -> None:
        self._number = 0 if state is None else state.number

    def apply(self, event: Total, collector: Any) -> None:
        self._number += 1
        collector.emit(Seen(self._number))

    def get_state(self) -> Number:
        return Number(self._number)


def write_input(path: Path, begin: int, end: int) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with path.open("a") as file:
        for n in range(begin, end):
            at = (start + timedelta(seconds=7 * n)).isoformat()
            file.write(f'{{"card": "c{n % 5}", "shop": {n % 3}, "cents": {n}, "at": "{at}"}}\n')


def job(folder: Path) -> Job:
    made = Job("golden", checkpoint_every=0, parallelism=2, retain=2)
    payments = made.source(JsonLines(folder / "in.jsonl", Payment, max_events=50), id="payments", time="at")
    totals = payments.apply(PerCard(), key=("card", "shop"), id="per-card")
    totals.sink(SqliteSink(folder / "out.db", "totals", key=("card", "shop")), id="totals")
    totals.apply(Counting(), id="counting", parallelism=2).sink(SqliteSink(folder / "out.db", "seen"), id="seen")
    ended = payments.window(Fixed("1min"), key="card", id="ended").aggregate(
        Ended, payments=count(), cents=sum_of("cents")
    )
    ended.sink(SqliteSink(folder / "out.db", "ended"), id="ended-out")
    return made
