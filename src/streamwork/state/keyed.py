"""The state of one component's instance, in memory."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamwork.components import Record, Timer, TimerClock
from streamwork.components.keys import canonical
from streamwork.state.layer import Layer
from streamwork.state.slots import Slots


class Thaw(Protocol):
    """Makes records of rows again, for keys that a layer holds (`RowFormat`)."""

    def find(self, layer: Layer, keys: list[Any]) -> Iterable[tuple[Any, Record | None]]:
        """(key, record) of those keys that the layer has a row of; no record if the row says that the key is gone."""


class KeyedState:
    """Key value -> record, timers of keys, and which keys changed since the last checkpoint.

    `records` holds what is in use. The rest may be in `layers`, the newest last: `warm` brings it in before it is asked for.
    A key that changed and has no record any more is one that was forgotten.

    For an operator that works on columns, what is in use is in `slots` and not in `records`: `place` moves it there.
    """

    __slots__ = ("_absent", "_resting", "_thaw", "_waiting", "changed", "layers", "records", "slots", "timers")

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}
        self.changed: set[Any] = set()
        self.timers: dict[Any, set[Timer]] = {}
        self.layers: list[Layer] = []
        self.slots: Slots | None = None
        self._thaw: Thaw | None = None
        self._resting = 0  # keys that are alive in the layers, as of the last checkpoint
        self._absent: set[Any] = set()  # keys that the layers do not have, or have no more
        # Ordered by time, then by the key's bytes: what fires first does not depend on what was set first.
        self._waiting: dict[TimerClock, list[tuple[datetime, bytes, Any]]] = {clock: [] for clock in TimerClock}

    def __len__(self) -> int:
        """How many keys are alive."""
        if not self.layers:
            return len(self.records) + (len(self.slots) if self.slots is not None else 0)
        born = sum(key in self.records for key in self._absent)
        if self.slots is not None:
            born += sum(key in self.slots.places for key in self._absent)
        died = sum(key not in self.records and key not in self._absent for key in self.changed)
        return self._resting + born - died

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
        self.warm([key])
        self.changed.add(key)
        return key, at

    # ---- what rests in layers -------------------------------------------------------------------------------------

    def rest(self, layer: Layer, alive: int, thaw: Thaw) -> None:
        """Begin with a layer instead of records: it holds `alive` keys."""
        self.layers, self._resting, self._thaw = [layer], alive, thaw

    def warm(self, keys: Iterable[Any]) -> None:
        """Bring the records of these keys in, as far as there are any."""
        if not self.layers:
            return
        assert self._thaw is not None
        records, absent = self.records, self._absent
        missing = [k for k in dict.fromkeys(keys) if k not in records and k not in absent and k not in self.changed]
        for layer in reversed(self.layers):
            if not missing:
                return
            found = dict(self._thaw.find(layer, missing))
            records.update((key, record) for key, record in found.items() if record is not None)
            absent.update(key for key, record in found.items() if record is None)
            missing = [key for key in missing if key not in found]
        absent.update(missing)

    # ---- what is in use as columns --------------------------------------------------------------------------------

    def use_columns(self, record: type[Record]) -> None:
        """Between two epochs: from now on keys are used through `place`."""
        if self.slots is None:
            self.slots = Slots(record)

    def use_records(self) -> None:
        """Between two epochs: from now on keys are used through `records`."""
        if self.slots is not None:
            self.records.update(zip(self.slots.places, self.slots.records(), strict=True))
            self.slots = None

    def place(self, keys: list[Any]) -> np.ndarray[Any, Any]:
        """The slots of these keys, each of which may come once only; those of new keys hold defaults."""
        assert self.slots is not None
        places, new = self.slots.place(keys)
        if len(new) and (self.records or self.layers):
            fresh = keys if len(new) == len(keys) else [keys[place] for place in new.tolist()]
            self.warm(fresh)
            kept = [self.records.pop(key, None) for key in fresh]
            found = [record for record in kept if record is not None]
            if found:
                self.slots.put_records(places[new[[record is not None for record in kept]]], found)
        return places

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    @property
    def is_changed(self) -> bool:
        return bool(self.changed) or (self.slots is not None and bool(self.slots.changed[: len(self.slots)].any()))

    def settle(self, delta: pa.Table | None, key: list[str], merged: Merge) -> None:
        """A checkpoint: what changed is in `delta`, which becomes a layer if there are any."""
        if self.layers:
            self._resting = len(self)
            self._absent.clear()
            if delta is not None and delta.num_rows:
                self.layers.append(Layer(delta, key))
                while len(self.layers) > 1 and 2 * len(self.layers[-1]) >= len(self.layers[-2]):
                    upper, lower = self.layers.pop(), self.layers.pop()
                    self.layers.append(Layer(merged([lower.rows, upper.rows], not self.layers), key))
        self.changed.clear()
        if self.slots is not None:
            self.slots.changed[: len(self.slots)] = False

    def cool(self, most: int) -> None:
        """Let go of the records that were not used for longest, until at most so many are left. They all rest in layers."""
        assert self.layers and not self.changed
        if self.slots is not None and len(self.slots) > most:
            self.slots = Slots(self.slots.record)  # they can only go together; what is hot comes back soon
        for key in list(self.records)[: max(0, len(self.records) - most)]:
            del self.records[key]

    def used(self, keys: Iterable[Any]) -> None:
        """These keys were used last: they go last."""
        for key in keys:
            if (record := self.records.pop(key, None)) is not None:
                self.records[key] = record


class Merge(Protocol):
    def __call__(self, tables: list[pa.Table], is_lowest: bool, /) -> pa.Table: ...


class InstanceState:
    """The one record of a component's instance; None if it never had one."""

    __slots__ = ("record", "saved")

    def __init__(self) -> None:
        self.record: Record | None = None
        self.saved: Record | None = None

    def __len__(self) -> int:
        return 0


State = KeyedState | InstanceState


def size_of(key: Any, record: Record) -> int:
    """About how many bytes a record takes in `KeyedState.records`, with its key and its place."""
    fields = [getattr(record, name) for name in record.__struct_fields__]
    values = sum(sys.getsizeof(value) for value in fields if not isinstance(value, int | float | bool | None))
    return 120 + sys.getsizeof(key) + sys.getsizeof(record) + 24 * len(fields) + values
