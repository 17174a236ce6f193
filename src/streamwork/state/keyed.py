"""The state of one component's instance, in memory."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from streamwork.components import Record, Timer, TimerClock
from streamwork.components.keys import canonical
from streamwork.state.layer import Layer
from streamwork.state.slots import Slots
from streamwork.state.table import Table
from streamwork.world import step_back

TOGETHER = 4
"""Layers that are merged into one. Merging more at a time is less work, but lookups search more layers until then."""
MANY = 20_000
"""Records that no longer fit into a processor's cache."""
BACKGROUND_ROWS = 10_000
"""Merges of at least so many rows run in the background: no checkpoint waits for them."""


class Thaw(Protocol):
    """Makes records of rows again, for keys that a layer holds (`RowFormat`)."""

    def keys(self, rows: pa.Table) -> list[Any]: ...

    def hashes(self, keys: list[Any]) -> np.ndarray[Any, Any]: ...

    def find(
        self, layer: Layer, keys: list[Any], hashes: np.ndarray[Any, Any]
    ) -> Iterable[tuple[int, Any, Record | None]]:
        """(place in `keys`, key, record) of those that the layer has a row of; no record if the row says that the key is gone."""


class KeyedState:
    """Key value -> record, timers of keys, and which keys changed since the last checkpoint.

    `records` holds what is in use. The rest may be in `layers`, the newest last: `warm` loads it before it is used.
    A key that changed and has no record was forgotten.

    For an operator that works on columns, what is in use is in `slots` and not in `records`: `place` moves it there.
    """

    __slots__ = (
        "_absent",
        "_merging",
        "_recent",
        "_resting",
        "_thaw",
        "_waiting",
        "changed",
        "gone",
        "layers",
        "records",
        "slots",
        "timers",
    )

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}
        self.changed: set[Any] = set()
        self.gone: set[Any] = set()  # keys that were forgotten since the last checkpoint; some may be back
        self.timers: dict[Any, set[Timer]] = {}
        self.layers: list[Layer] = []
        self.slots: Slots | None = None
        self._thaw: Thaw | None = None
        self._resting = 0  # keys that are alive in the layers, as of the last checkpoint
        self._absent: set[Any] = set()  # keys that the layers do not have, or have no more
        self._recent: set[Any] = set()  # keys that were used recently: `cool` spares them once
        self._merging: Merging | None = None
        # Ordered by time, then by the key's bytes: what fires first does not depend on what was set first.
        self._waiting: dict[TimerClock, list[tuple[datetime, bytes, Any]]] = {clock: [] for clock in TimerClock}

    def __len__(self) -> int:
        """How many keys are alive."""
        if not self.layers:
            return len(self.records) + (len(self.slots) if self.slots is not None else 0)
        born = sum(key in self.records for key in self._absent)
        if self.slots is not None:
            born += sum(key in self.slots.places for key in self._absent)
        died = sum(key not in self.records and key not in self._absent for key in self.gone)
        return self._resting + born - died

    def set_timer(self, key: Any, timer: Timer) -> None:
        mine = self.timers.setdefault(key, set())
        if timer not in mine:
            mine.add(timer)
            heapq.heappush(self._waiting[timer.clock], (timer.at, canonical(key), key))

    def forget(self, key: Any) -> None:
        self.records.pop(key, None)
        self._recent.discard(key)
        self.timers.pop(key, None)
        self.changed.add(key)
        self.gone.add(key)

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
        self.gone.clear()

    def warm(self, keys: Iterable[Any]) -> None:
        """Bring the records of these keys in, as far as there are any."""
        if not self.layers:
            return
        assert self._thaw is not None
        records, absent = self.records, self._absent
        missing = [k for k in dict.fromkeys(keys) if k not in records and k not in absent and k not in self.changed]
        hashes = self._thaw.hashes(missing) if missing else None
        for layer in reversed(self.layers):
            if hashes is None or not missing:
                return
            left = np.ones(len(missing), bool)
            for place, key, record in self._thaw.find(layer, missing, hashes):
                left[place] = False
                if record is None:
                    absent.add(key)
                else:
                    records[key] = record
            if not left.all():
                missing, hashes = [missing[place] for place in np.flatnonzero(left).tolist()], hashes[left]
        absent.update(missing)

    def wake(self) -> None:
        """Between two epochs: bring all records in and drop the layers."""
        assert self._thaw is not None and not self.changed
        for layer in reversed(self.layers):
            keys = self._thaw.keys(layer.rows)
            self.warm(keys if self.slots is None else [key for key in keys if key not in self.slots.places])
        if self.slots is not None:
            self.place(list(self.records))
        self.layers, self._merging = [], None
        self._absent.clear()

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

    def changed_keys(self) -> list[Any]:
        """The keys that changed; many of them in the order of `records`, as records that were made together lie together.

        What lies together comes into the processor's cache together: for half a million records that is half of the time.
        """
        if len(self.changed) < max(MANY, len(self.records) // 8):
            return list(self.changed)
        changed, records = self.changed, self.records
        keys = [key for key in records if key in changed]
        return keys if len(keys) == len(changed) else keys + [key for key in changed if key not in records]

    def end_checkpoint(self, delta: pa.Table | None, key: list[str], merged: Merge) -> None:
        """A checkpoint: what changed is in `delta`, which becomes a layer if there are any."""
        if self.layers:
            self._resting = len(self)
            self._absent.clear()
            if delta is not None and delta.num_rows:
                self.layers.append(Layer(delta, key))
            self._merge_layers(key, merged)
        self.changed.clear()
        self.gone.clear()
        if self.slots is not None:
            self.slots.changed[: len(self.slots)] = False

    def _merge_layers(self, key: list[str], merged: Merge) -> None:
        """Let there be few layers: `TOGETHER` neighbours become one unless the lowest outweighs the others; large ones meanwhile,
        in the background.
        """
        if self._merging is not None and self._merging.done.done():
            at = self.layers.index(self._merging.lowest)
            self.layers[at : at + TOGETHER] = [self._merging.done.result()]
            self._merging = None
        at = len(self.layers) - TOGETHER
        # One merge at a time: a layer that is on its way into one must not get into another as well.
        while self._merging is None and at >= 0:
            some = self.layers[at : at + TOGETHER]
            if len(some[0]) > sum(map(len, some[1:])):  # where this is so everywhere, their number is a logarithm
                at -= 1
                continue
            if sum(map(len, some)) >= BACKGROUND_ROWS:
                self._merging = Merging(some[0], _background().submit(_merged, some, at == 0, key, merged))
                return
            self.layers[at : at + TOGETHER] = [_merged(some, at == 0, key, merged)]
            at = len(self.layers) - TOGETHER

    def cool(self, most: int) -> None:
        """Drop records, the oldest first, until at most so many are left. They all rest in layers.

        One that was used since it was last considered is spared once.
        """
        assert self.layers and not self.changed
        if self.slots is not None and len(self.slots) > most:
            self.slots = Slots(self.slots.record)  # they can only go together; what is hot comes back soon
        spared = 0
        for key in list(islice(self.records, max(0, len(self.records) - most))):
            record = self.records.pop(key)
            if key in self._recent:
                self._recent.discard(key)
                self.records[key] = record
                spared += 1
        for key in list(islice(self.records, spared if len(self.records) > most else 0)):
            self._recent.discard(key)
            del self.records[key]

    def used(self, keys: Iterable[Any]) -> None:
        """Mark keys as used, so that `cool` spares them once. Keys that have left `records` are removed from the marks."""
        self._recent.update(key for key in keys if key in self.records)
        if len(self._recent) > len(self.records):
            self._recent = {key for key in self._recent if key in self.records}


def _merged(layers: list[Layer], is_lowest: bool, key: list[str], merged: Merge) -> Layer:
    return Layer(merged([layer.rows for layer in layers], is_lowest), key)


class Merging(NamedTuple):
    """`TOGETHER` layers on their way to become one: this and those behind it."""

    lowest: Layer
    done: Future[Layer]


@cache
def _background() -> ThreadPoolExecutor:
    """One thread per process. Merging layers runs in C and releases the GIL."""
    return ThreadPoolExecutor(1, "streamwork-layers", initializer=step_back)


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


State = KeyedState | InstanceState | Table


def size_of(key: Any, record: Record) -> int:
    """About how many bytes a record takes in `KeyedState.records`, with its key and its place."""
    fields = [getattr(record, name) for name in record.__struct_fields__]
    values = sum(sys.getsizeof(value) for value in fields if not isinstance(value, int | float | bool | None))
    return 120 + sys.getsizeof(key) + sys.getsizeof(record) + 24 * len(fields) + values
