"""The generator: a card network with a known share of planted fraud, of three kinds. Everything follows from the seed."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from .average_ticket import ENOUGH
from .cards import SHOPS, Card, City
from .count import TOO_MANY
from .transaction import Transaction


class Kind(Enum):
    """A kind of fraud, and the analyser that should find it."""

    AMOUNT = "average-ticket"  # an amount far above the card's own average
    PLACE = "proximity"  # a place that is too far from the last one for the time between
    COUNT = "count"  # too many transactions in a short time


class Planned(NamedTuple):
    """A transaction, and the kind of fraud that it is; None: an honest one."""

    transaction: Transaction
    fraud: Kind | None


EVERY = 5.0
"""Seconds between two uses of a card, on average. So a faster generator has more cards."""
SHARE = 0.03
"""Share of planted fraud, about a third of each kind."""
BURST = 12
"""Transactions of one burst. Those from the 8th on are fraud: nothing distinguishes the first ones."""
BETWEEN = 0.04
"""Seconds between two transactions of a burst."""
REST = 2.0
"""Seconds after a burst in which the card is not used."""
RECENT = timedelta(minutes=10)
"""A far place is planted only if the card was used so recently: after longer, it could be true."""
PAST = timedelta(minutes=10)
"""The time over which the history of cards is spread."""


class Generator:
    """An endless stream of transactions at a fixed rate."""

    def __init__(self, seed: int, rate: float, start: datetime, share: float = SHARE, name: str = "t") -> None:
        """`name` begins the id of each transaction: two runs need two names."""
        self.rate = rate
        self._dice = random.Random(seed)
        self._start = start
        self._share = share
        self._name = name
        self.cards = Card.some(max(BURST, round(rate * EVERY)), self._dice)
        self._used: Counter[str] = Counter()
        self._last: dict[str, datetime] = {}
        self._bursts: list[tuple[float, int, Card]] = []  # a heap: (due, number in the burst, card)
        self._resting: dict[str, float] = {}  # card -> until when no honest transaction uses it
        self._number = 0

    def history(self, each: int = ENOUGH + 1) -> list[Transaction]:
        """Honest transactions of every card before the start, in the order of their time."""
        drawn = [(self._dice.random(), card) for card in self.cards for _ in range(each)]
        drawn.sort(key=lambda one: one[0])
        return [self._make(card, self._start - PAST * (1 - when), card.home) for when, card in drawn]

    def __iter__(self) -> Iterator[Planned]:
        """The n-th transaction has the time start + n / rate."""
        slot = 0
        while True:
            yield self._next(slot / self.rate)
            slot += 1

    def _next(self, now: float) -> Planned:
        at = self._start + timedelta(seconds=now)
        if self._bursts and self._bursts[0][0] <= now:
            _, number, card = heapq.heappop(self._bursts)
            if number < BURST:
                heapq.heappush(self._bursts, (now + BETWEEN, number + 1, card))
            else:
                self._resting[card.id] = now + REST
            return Planned(self._make(card, at, card.home), Kind.COUNT if number >= TOO_MANY else None)
        card = self._draw(now)
        kind = self._plant(card, at)
        if kind is Kind.AMOUNT:
            return Planned(self._make(card, at, card.home, times=self._dice.uniform(12, 30)), kind)
        if kind is Kind.PLACE:
            return Planned(self._make(card, at, card.far_city(self._dice)), kind)
        if kind is Kind.COUNT:
            heapq.heappush(self._bursts, (now + BETWEEN, 2, card))
            self._resting[card.id] = float("inf")
        return Planned(self._make(card, at, card.home), None)

    def _draw(self, now: float) -> Card:
        while True:
            card = self._dice.choice(self.cards)
            if self._resting.get(card.id, 0.0) <= now:
                return card

    def _plant(self, card: Card, at: datetime) -> Kind | None:
        """Only where it can be found: on a card that has a history."""
        drawn = self._dice.random() * 3 / self._share
        known = self._used[card.id] > ENOUGH and at - self._last[card.id] < RECENT
        if not known or drawn >= 2 + 1 / (BURST - TOO_MANY + 1):
            return None
        return Kind.AMOUNT if drawn < 1 else Kind.PLACE if drawn < 2 else Kind.COUNT

    def _make(self, card: Card, at: datetime, city: City, times: float | None = None) -> Transaction:
        self._number += 1
        self._used[card.id] += 1
        self._last[card.id] = at
        dice = self._dice
        return Transaction(
            id=f"{self._name}-{self._number}",
            card=card.id,
            merchant=f"{dice.choice(SHOPS)} in {city.name}",
            latitude=round(city.latitude + dice.gauss(0, 0.03), 5),
            longitude=round(city.longitude + dice.gauss(0, 0.03), 5),
            amount=round(card.usual * (times or dice.lognormvariate(0, 0.5)), 2),
            at=at,
        )
