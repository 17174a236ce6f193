"""The habits of a card: the median of its amounts and how far they spread, both robust against fraud among them. They need all
amounts of a card, so only batch runs compute them.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Any, NamedTuple

from streamwork import KeyedCollector, KeyedOperator, Record
from streamwork.lambdas import View

from .payments import Payment

ENOUGH = 20
"""Payments of a card before its habits mean something."""
NORMAL = 1.4826
"""The median distance from the median, times this, is the standard deviation of a normal distribution."""
LEAST = 0.05
"""A card that always pays the same is not that steady."""


class Amounts(Record):
    amounts: list[float] = []


class AllAmounts(KeyedOperator[Payment, Amounts, Payment]):
    def apply(self, event: Payment, state: Amounts, collector: KeyedCollector) -> None:
        state.amounts.append(event.amount)


class Habit(NamedTuple):
    middle: float  # of the logarithms of amounts
    spread: float

    @classmethod
    def of(cls, amounts: list[float]) -> Habit | None:
        if len(amounts) < ENOUGH:
            return None
        logarithms = [math.log(max(amount, 0.01)) for amount in amounts]
        middle = median(logarithms)
        return cls(middle, max(LEAST, NORMAL * median(abs(one - middle) for one in logarithms)))

    def unusual(self, amount: float) -> float:
        """How many standard deviations an amount is above the usual one."""
        return (math.log(max(amount, 0.01)) - self.middle) / self.spread


def habits(view: View[Any]) -> dict[str, Habit]:
    """Card -> its habits, of the batch run that the view shows; none before the first one."""
    if view.run is None:
        return {}
    found = {card: Habit.of(record.amounts) for card, record in view.batch["amounts"].scan()}
    return {card: habit for card, habit in found.items() if habit is not None}
