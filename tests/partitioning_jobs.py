"""Operators that keep a key, or claim to. Importable by Spark's workers."""

from __future__ import annotations

from typing import Any

from streamwork import Event, KeyedOperator, Operator, Record


class Paid(Event):
    card: str
    shop: str
    source: int
    number: int
    amount: int = 1


class Renamed(Event):
    holder: str
    number: int


class Seen(Record):
    count: int = 0
    total: int = 0


class Adding(KeyedOperator[Paid, Seen, Paid]):
    """Adds what it has seen of the key; the event keeps its key."""

    keeps_key = True

    def apply(self, event: Paid, state: Seen, collector: Any) -> None:
        state.count += 1
        state.total += event.amount
        collector.emit(Paid(event.card, event.shop, event.source, event.number, event.amount))


class Forgetful(Adding):
    keeps_key = False


class Halving(Operator[Paid, Paid]):
    keeps_key = True

    def apply(self, event: Paid, collector: Any) -> None:
        if event.number % 7:
            collector.emit(event)


class Lying(Operator[Paid, Paid]):
    """Claims to keep the key, and swaps it."""

    keeps_key = True

    def apply(self, event: Paid, collector: Any) -> None:
        collector.emit(Paid(event.card[::-1], event.shop, event.source, event.number))


class LyingByKey(KeyedOperator[Paid, Seen, Paid]):
    keeps_key = True

    def apply(self, event: Paid, state: Seen, collector: Any) -> None:
        collector.emit(Paid(event.shop, event.shop, event.source, event.number))


def paid(count: int, source: int = 0) -> list[Paid]:
    return [Paid(f"c{i * 31 % 17}-{source % 2}", f"s{i * 7 % 5}", source, i) for i in range(count)]
