"""The judge: each payment against the habits of its card; without habits, against the average of the card so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from streamwork import Event, Instance, KeyedCollector, KeyedOperator, Record
from streamwork.lambdas import View

from .model import Habit, habits
from .payments import Payment

UNUSUAL = 3.5
"""Standard deviations above the usual amount."""
TIMES, ENOUGH = 8.0, 5
"""Without habits: times the average, after so many payments."""
EVERY = 1.0
"""Seconds between two looks for a newer batch run."""


class Verdict(Event):
    payment: str
    card: str
    is_fraud: bool
    with_habits: bool


class Average(Record):
    payments: int = 0
    average: float = 0.0


class Judge(KeyedOperator[Payment, Average, Verdict]):
    deterministic = False  # it reads a model that changes

    def __init__(self, open_habits: Callable[[Instance], View[Any]]) -> None:
        self._open = open_habits

    def setup_instance(self, instance: Instance) -> None:
        self._view = self._open(instance)
        self._habits: dict[str, Habit] = {}
        self._run: int | None = None
        self._looked = float("-inf")

    def apply(self, event: Payment, state: Average, collector: KeyedCollector) -> None:
        self._refresh()
        habit = self._habits.get(event.card)
        if habit is not None:
            is_fraud = habit.unusual(event.amount) > UNUSUAL
        else:
            is_fraud = state.payments >= ENOUGH and event.amount > TIMES * state.average
        if not is_fraud:
            state.payments += 1
            state.average += (event.amount - state.average) / state.payments
        collector.emit(Verdict(event.id, event.card, is_fraud, habit is not None))

    def close(self) -> None:
        self._view.close()

    def _refresh(self) -> None:
        if time.monotonic() < self._looked + EVERY:
            return
        self._looked = time.monotonic()
        if self._view.run != self._run:
            self._habits, self._run = habits(self._view), self._view.run
