"""The average ticket: the amount of a transaction against the card's own history."""

from __future__ import annotations

from streamwork import KeyedCollector, KeyedOperator, Record

from .score import AVERAGE_TICKET, Score, between
from .transaction import Transaction

ENOUGH = 5
"""Transactions of a card before its average means something."""
USUAL, SUSPICIOUS = 3.0, 8.0
"""Times the average: up to the first, the score is 0; from the second on, it is 1."""
WEIGHT = 0.05
"""Weight of a new amount, once the history is long: old habits fade."""


class History(Record):
    transactions: int = 0
    average: float = 0.0


class AverageTicket(KeyedOperator[Transaction, History, Score]):
    """An amount that is suspicious does not become part of the history: a thief must not be able to raise the average."""

    def apply(self, event: Transaction, state: History, collector: KeyedCollector) -> None:
        score = 0.0
        if state.transactions >= ENOUGH and state.average > 0:
            score = between(USUAL, event.amount / state.average, SUSPICIOUS)
        if score < 1:
            state.transactions += 1
            state.average += (event.amount - state.average) * max(WEIGHT, 1 / state.transactions)
        collector.emit(Score(event.id, event.card, AVERAGE_TICKET, score))
