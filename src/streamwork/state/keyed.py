"""The state of one component's instance, in memory."""

from __future__ import annotations

import heapq
from datetime import datetime
from typing import Any

from streamwork.components import Record, Timer, TimerClock
from streamwork.components.keys import canonical


class KeyedState:
    """Key value -> record, timers of keys, and which keys changed since the last checkpoint.

    A key that changed and has no record any more is one that was forgotten.
    """

    __slots__ = ("_waiting", "changed", "records", "timers")

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}
        self.changed: set[Any] = set()
        self.timers: dict[Any, set[Timer]] = {}
        # Ordered by time, then by the key's bytes: what fires first does not depend on what was set first.
        self._waiting: dict[TimerClock, list[tuple[datetime, bytes, Any]]] = {clock: [] for clock in TimerClock}

    def __len__(self) -> int:
        return len(self.records)

    def set_timer(self, key: Any, timer: Timer) -> None:
        mine = self.timers.setdefault(key, set())
        if timer not in mine:
            mine.add(timer)
            heapq.heappush(self._waiting[timer.clock], (timer.at, canonical(key), key))

    def forget(self, key: Any) -> None:
        self.records.pop(key, None)
        self.timers.pop(key, None)
        self.changed.add(key)

    def next_timer(self, clock: TimerClock) -> datetime | None:
        """When the next timer of that clock is due."""
        waiting = self._waiting[clock]
        while waiting:
            at, _, key = waiting[0]
            if Timer(at, clock) in self.timers.get(key, ()):
                return at
            heapq.heappop(waiting)  # of a key that was forgotten
        return None

    def pop_due(self, clock: TimerClock, now: datetime) -> tuple[Any, datetime] | None:
        """The next (key, time) that is due at `now`, which is no longer set then."""
        at = self.next_timer(clock)
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._waiting[clock])
        mine = self.timers[key]
        mine.discard(Timer(at, clock))
        if not mine:
            del self.timers[key]
        self.changed.add(key)
        return key, at


class InstanceState:
    """The one record of a component's instance; None if it never had one."""

    __slots__ = ("record", "saved")

    def __init__(self) -> None:
        self.record: Record | None = None
        self.saved: Record | None = None

    def __len__(self) -> int:
        return 0


State = KeyedState | InstanceState
