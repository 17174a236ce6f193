"""`SliceSize`: how many events the next slice takes, from what the last ones cost. Pure.

A slice that is not limited by its input fills the target:

    checkpoint_every                 in steady state: results are late by about one interval
    2 x, 4 x, ... 10 x of it         in a backlog, more with each slice that leaves input over: the fixed cost of an epoch is then
                                     shared by more events. `target_epoch` is the most, if it is set
    checkpoint_every                 under at-most-once always, since a crash loses a slice

The cost of an event is the time of an epoch, with its sinks, divided by its events. Where the fixed cost of an epoch alone is
longer than the target, smaller slices would not make it shorter: there `fixed_cost` finds the size.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from streamwork.epoch.fixed_cost import FixedCost, Taken

FIRST = 50_000
FIRST_AT_MOST_ONCE = 5_000
"""Events of the first slice, when no cost is known."""
GROWTH = 8.0
"""A slice is at most this many times the largest that was measured."""
MOST_INTERVALS = 10.0
MEASURED = 4
"""The number of epochs that costs are averaged over."""


class _Cost(NamedTuple):
    events: int
    seconds: float

    @property
    def per_event(self) -> float:
        return self.seconds / self.events


class SliceSize:
    def __init__(self, checkpoint_every: float, target: float | None = None, at_most_once: bool = False) -> None:
        """All in seconds. Without an interval and without a target, slices have no size."""
        self._every = checkpoint_every
        most = checkpoint_every * (1.0 if at_most_once else MOST_INTERVALS)
        self._most = most if target is None else target if most <= 0 else min(target, most)
        self._first = FIRST_AT_MOST_ONCE if at_most_once else FIRST
        self._costs: deque[_Cost] = deque(maxlen=MEASURED)
        self._is_first = True
        self._backlog = 0  # slices, one after the other, that left input over
        self._fixed = FixedCost(self._most)

    @property
    def is_known(self) -> bool:
        return self._most > 0

    def measured(self, events: int, seconds: float, left_over: bool, asked: int) -> None:
        """An epoch of so many events took so long, with its sinks, while it did not wait. `asked` is the size when it was planned;
        `left_over` says that there was more input.
        """
        self._backlog = self._backlog + 1 if left_over else 0
        if events <= 0 or seconds <= 0:
            return
        if left_over and not self._is_first:
            self._fixed.measured(Taken(asked, events, seconds))
        if len(self._costs) == 1 and self._is_first:
            self._costs.clear()  # the first one also started workers
            self._is_first = False
        self._costs.append(_Cost(events, seconds))

    @property
    def target(self) -> float:
        """Seconds that a slice should take which its input does not limit."""
        growing = self._every * 2.0 ** max(0, self._backlog - 1)
        return min(growing, self._most) if self._every > 0 else self._most

    @property
    def events(self) -> int:
        """Of the next slice, at least 1."""
        if not self._costs:
            return self._first
        most = int(GROWTH * max(cost.events for cost in self._costs))
        if self._fixed.size is not None:
            return max(1, min(self._fixed.size, most))
        newest = self._costs[-1].per_event
        mean = sum(cost.seconds for cost in self._costs) / sum(cost.events for cost in self._costs)
        wanted = self.target / max(newest, (newest + mean) / 2)  # a component that slows is noticed at once
        return max(1, min(int(wanted), most))
