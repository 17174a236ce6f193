"""`Fault`: what is killed, and when. Pure: everything follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

FIRST = 6.0
"""Seconds of traffic before the first fault."""
ROOM = 12.0
"""Seconds of traffic after the last fault: the time of a recovery."""
GAP = (8.0, 16.0)
"""Shortest and longest average time between two faults of a run that ends."""
FOREVER_GAP = 30.0
AT_ONCE = 4
"""A run that ends has about one fault more than that, if it is long enough."""


class Job(Enum):
    """The jobs of the card network, by their names."""

    FRAUD = "fraud-detection"
    USAGE = "system-usage"


class Victim(Enum):
    """What is killed."""

    ANALYSER = "analyser"  # a process of an isolated component
    TASK = "task"  # the Python worker that runs the live job
    FRAUD_DRIVER = "driver of fraud detection"
    WORKER = "worker"  # a Python worker of the microbatch job
    USAGE_DRIVER = "driver of system usage"

    @property
    def job(self) -> Job:
        return Job.USAGE if self in (Victim.WORKER, Victim.USAGE_DRIVER) else Job.FRAUD

    @property
    def is_driver(self) -> bool:
        return self in (Victim.FRAUD_DRIVER, Victim.USAGE_DRIVER)


FIRST_ROUND = (Victim.ANALYSER, Victim.USAGE_DRIVER, Victim.TASK, Victim.WORKER, Victim.FRAUD_DRIVER)
"""The most instructive ones first, for short runs."""


class Fault(NamedTuple):
    at: float  # seconds after the first transaction
    victim: Victim
    choice: float  # 0 to 1: which one, if there are several


def schedule(seconds: float | None, seed: int) -> list[Fault] | Iterator[Fault]:
    """The faults of a run with so many seconds of traffic; an endless iterator for None."""
    if seconds is None:
        return _faults(seed, FOREVER_GAP)
    last = seconds - ROOM
    gap = min(GAP[1], max(GAP[0], (last - FIRST) / AT_ONCE))
    return list(takewhile(lambda fault: fault.at <= last, _faults(seed, gap)))


def _faults(seed: int, gap: float) -> Iterator[Fault]:
    dice = random.Random(seed)
    at, victims = FIRST, list(FIRST_ROUND)
    while True:
        for victim in victims:
            yield Fault(round(at, 2), victim, 0.0 if at == FIRST else dice.random())
            at += gap * dice.uniform(0.9, 1.1)
        dice.shuffle(victims)
