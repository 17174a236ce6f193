"""Payments, and a generator of them with planted fraud. Everything follows from the seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

from streamwork import Event


class Payment(Event):
    id: str
    card: str
    amount: float


class Planned(NamedTuple):
    payment: Payment
    is_fraud: bool


CARDS = 200
SHARE = 0.02
"""Share of planted fraud."""
STEADY, VARIED = 0.15, 1.0
"""Half of the cards always spend about the same; the other half do not. The spread of the logarithm of amounts."""
SIZE = {STEADY: 4.0, VARIED: 45.0}
"""How many times the usual amount a thief takes: on a steady card a little is already unusual."""


def payments(seed: int, count: int, name: str) -> Iterator[Planned]:
    """`name` begins the ids. The cards are the same for every seed."""
    dice = random.Random(seed)
    for number in range(count):
        card = dice.randrange(CARDS)
        usual, spread = 10.0 * 1.02**card, STEADY if card % 2 else VARIED
        is_fraud = dice.random() < SHARE
        times = SIZE[spread] if is_fraud else math.exp(dice.gauss(0, spread))
        yield Planned(Payment(f"{name}-{number}", f"card-{card:03}", round(usual * times, 2)), is_fraud)
