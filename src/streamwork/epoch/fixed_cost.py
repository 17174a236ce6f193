"""`FixedCost`: the size of slices in a backlog where the cost of an epoch is mostly fixed. Pure.

The rule for other epochs, target / cost of an event, fails there. Where the fixed cost is longer than the target, slices become
smaller with each epoch, and epochs no shorter; where it is a little below, slices grow slowly. So half the events are tried now
and then:

    FREE    the rule holds. Epochs that take more than half the target are counted
    HALF    half the events are tried. If the epoch takes at least `SAME` of the time, its fixed cost dominates
    MORE    twice the events are tried, or `LEAP` times as many where that made no difference. If the smaller epoch takes at least
            `SAME` of the time of this one, this is the new size, and more are tried
    HELD    the size that was found, while epochs take about the target, or more. Half is tried every `PATIENCE` epochs

No size is kept whose epochs take longer than the target; where the fixed cost alone does, or nearly, than `MOST` times that cost.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import NamedTuple

SAME = 0.8
"""An epoch that takes this part of the time of another one is not shorter."""
SHORTER = 0.65
"""If half the events take less than this part of the time, each event costs more than its share of the fixed cost."""
EQUAL = 0.95
LEAP = 4
MOST = 2.0
RISE = 1.1
"""What is known of the fixed cost rises by this factor at most, each time half the events are tried."""
OVER = 4
"""Epochs in a row above the target, before half the events are tried."""
SOON = 3
PATIENCE = 16
"""Counted epochs before half the events are tried: the first time in a backlog, and again."""
ALIKE = 1.5
"""Epochs whose events differ by less than this factor are averaged."""
EARLY = 2.0
"""A held epoch that takes so many times as long as usual is a reason to try half at once."""


class Taken(NamedTuple):
    """An epoch whose slice was full."""

    asked: int  # the size when it was planned; partitions and `max_events` may have limited it to fewer events
    events: int
    seconds: float

    def is_like(self, other: Taken) -> bool:
        return self.events < ALIKE * other.events and other.events < ALIKE * self.events

    def averaged(self, newest: Taken) -> Taken:
        """The newest, with the mean time of both: of itself a quarter, or all if it took longer because it had more events."""
        mean = (3 * self.seconds + newest.seconds) / 4
        return newest._replace(seconds=max(mean, newest.seconds) if newest.events > self.events else mean)


class Phase(Enum):
    FREE = "free"
    HALF = "half"
    MORE = "more"
    HELD = "held"


NEXT = {
    Phase.FREE: (Phase.HALF,),
    Phase.HALF: (Phase.MORE, Phase.HELD, Phase.FREE),
    Phase.MORE: (Phase.MORE, Phase.HELD),
    Phase.HELD: (Phase.HALF, Phase.FREE),
}


class FixedCost:
    def __init__(self, most: float) -> None:
        """`most`: seconds of the target of a backlog."""
        self._most = most
        self.phase = Phase.FREE
        self._known: Taken | None = None  # the epoch that others are compared with
        self._tried = 0  # its size, or the one that is tried
        self._least = inf  # seconds of an epoch with few events, since the search began
        self._epochs = 0  # in this phase
        self._over = 0  # in a row
        self._patience = SOON

    @property
    def size(self) -> int | None:
        """Events of the next slice; None where the ordinary rule holds."""
        return None if self.phase is Phase.FREE else self._tried

    def measured(self, taken: Taken) -> None:
        """An epoch that left input over."""
        known = self._known
        if self.phase is Phase.FREE or known is None:
            self._watch(taken)
            return
        if taken.asked != self._tried:  # it was planned before
            return
        self._epochs += 1
        match self.phase:
            case Phase.HALF:
                self._compare_half(taken, known)
            case Phase.MORE:
                has_more = taken.events > known.events  # else something else limits the slice
                if has_more and known.seconds >= SAME * taken.seconds and taken.seconds <= self._limit:
                    self._try_more(taken, LEAP if self._least >= EQUAL * taken.seconds else 2)
                elif self._tried > 2 * known.asked:
                    self._try_more(known, 2)
                else:
                    self._hold(known)
            case Phase.HELD:
                self._held(taken, known)

    @property
    def _limit(self) -> float:
        return self._most if self._least <= self._most else MOST * self._least

    def _watch(self, taken: Taken) -> None:
        if taken.seconds <= self._most / 2:
            self._known, self._epochs, self._over, self._patience = None, 0, 0, SOON
            return
        known = self._known
        self._known = known = known.averaged(taken) if known is not None and known.is_like(taken) else taken
        self._epochs += 1
        self._over = self._over + 1 if taken.seconds > self._most else 0
        if self._epochs >= self._patience or self._over >= OVER:
            self._least = inf
            self._try_half(known)

    def _compare_half(self, half: Taken, known: Taken) -> None:
        ratio = half.seconds / known.seconds
        may_rise = RISE * self._least if self._least > self._most else min(RISE * self._least, self._most)
        self._least = min(may_rise, half.seconds)
        expected = known.seconds + 2 * max(0.0, known.seconds - half.seconds)  # of twice the events
        if SAME <= ratio <= 1 / SAME and expected <= self._limit:
            self._try_more(known, 2)
        elif SAME <= ratio <= 1 / SAME and known.seconds <= self._limit:
            self._hold(known)
        elif SHORTER <= ratio < SAME and half.seconds > SAME * self._most:
            self._hold(half)
        else:  # it is shorter by far, or something has changed, or noise has hidden what an epoch costs at least
            self._go(Phase.FREE, known, 0)

    def _held(self, taken: Taken, known: Taken) -> None:
        if taken.seconds < SAME * self._most:
            self._go(Phase.FREE, known, 0)
        elif taken.seconds > EARLY * known.seconds or self._epochs >= PATIENCE:
            self._try_half(known)
        else:
            self._known = known.averaged(taken)

    def _try_half(self, known: Taken) -> None:
        self._go(Phase.HALF, known, max(1, known.asked // 2))

    def _try_more(self, known: Taken, factor: int) -> None:
        self._go(Phase.MORE, known, factor * known.asked)

    def _hold(self, known: Taken) -> None:
        self._go(Phase.HELD, known, known.asked)

    def _go(self, phase: Phase, known: Taken, size: int) -> None:
        assert phase in NEXT[self.phase], f"{self.phase} -> {phase}"
        self.phase, self._tried = phase, size
        self._epochs, self._over, self._patience = 0, 0, PATIENCE
        self._known = None if phase is Phase.FREE else known
