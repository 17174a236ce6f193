"""The state of one component's instance, in memory."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamwork.components import Record, Timer, TimerClock
from streamwork.components.keys import canonical
from streamwork.state.layer import Layer
from streamwork.state.layered_table import LayeredTable
from streamwork.state.layers import Layers
from streamwork.state.table import Table

MANY = 20_000
"""Records that no longer fit into a processor's cache."""


UNKNOWN = datetime(1, 1, 1, tzinfo=UTC)
"""When a key is forgotten that was touched behind the last advance of event time: not known before the next one."""


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
    A key that changed and has no record was forgotten. If it was born since the last checkpoint, too, it leaves no row there.
    """

    __slots__ = (
        "_absent",
        "_born",
        "_expiries",
        "_expiring",
        "_recent",
        "_thaw",
        "_unsettled",
        "_waiting",
        "changed",
        "gone",
        "layers",
        "records",
        "timers",
    )

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}
        self.changed: set[Any] = set()
        self.gone: set[Any] = set()  # keys of the last checkpoint that were forgotten since; some may be back
        self._born: set[Any] = set()  # keys that came since the last checkpoint
        self.timers: dict[Any, set[Timer]] = {}
        self.layers: Layers | None = None
        self._thaw: Thaw | None = None
        self._absent: set[Any] = set()  # keys that the layers do not have, or have no more
        self._recent: set[Any] = set()  # keys that were used recently: `cool` spares them once
        self._expiries: dict[Any, datetime] = {}  # when each key is forgotten, if it is not touched before
        self._unsettled: set[Any] = set()  # the keys of which this is not known yet
        # The keys that have an entry among those that wait for `TTL`, perhaps an earlier one.
        self._expiring: set[Any] = set()
        # Ordered by time, then by the key's bytes: what fires first does not depend on what was set first.
        self._waiting: dict[TimerClock, list[tuple[datetime, bytes, Any]]] = {clock: [] for clock in TimerClock}

    def __len__(self) -> int:
        """How many keys are alive."""
        if self.layers is None:
            return len(self.records)
        born = sum(key in self.records for key in self._absent)
        died = sum(key not in self.records and key not in self._absent for key in self.gone)
        return self.layers.alive + born - died

    def set_timer(self, key: Any, timer: Timer) -> None:
        if timer.clock is TimerClock.TTL:
            self.touch(key, timer.at)
            return
        mine = self.timers.setdefault(key, set())
        if timer not in mine:
            mine.add(timer)
            heapq.heappush(self._waiting[timer.clock], (timer.at, canonical(key), key))

    def delete_timer(self, key: Any, timer: Timer) -> None:
        mine = self.timers.get(key)
        if mine is not None:
            mine.discard(timer)
            if not mine:
                del self.timers[key]

    def touch(self, key: Any, at: datetime) -> None:
        """Forget the key at this time, unless it is touched again before. `UNKNOWN`: `settle` says when."""
        mine, before = self.timers.setdefault(key, set()), self._expiries.get(key)
        if before is not None:
            mine.discard(Timer(before, TimerClock.TTL))
        mine.add(Timer(at, TimerClock.TTL))
        self._expiries[key] = at
        if at == UNKNOWN:
            self._unsettled.add(key)
            return
        self._unsettled.discard(key)
        if key not in self._expiring:
            self._expiring.add(key)
            heapq.heappush(self._waiting[TimerClock.TTL], (at, canonical(key), key))

    def settle(self, at: datetime) -> None:
        """Forget the keys that were touched at an unknown time at this time."""
        for key in [key for key in self._unsettled if self._expires(key, UNKNOWN)]:
            self.touch(key, at)
            self.changed.add(key)
        self._unsettled.clear()

    def next_expiry(self) -> datetime | None:
        """When the next key is to be forgotten; `UNKNOWN` if that is to be settled."""
        if self._unsettled:
            return UNKNOWN
        waiting = self._waiting[TimerClock.TTL]
        while waiting:
            at, text, key = waiting[0]
            now = self._expiries.get(key)
            if now is None or not self._expires(key, now):
                heapq.heappop(waiting)
                self._expiring.discard(key)
            elif now != at:  # it was touched since
                heapq.heapreplace(waiting, (now, text, key))
            else:
                return at
        return None

    def pop_expired(self, now: datetime) -> Any:
        """The next key that is to be forgotten at `now`, in a tuple; None if there is none."""
        at = self.next_expiry()
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._waiting[TimerClock.TTL])
        self._expiring.discard(key)
        self.warm([key])
        return (key,)

    def _expires(self, key: Any, at: datetime) -> bool:
        return Timer(at, TimerClock.TTL) in self.timers.get(key, ())

    def add(self, key: Any, record: Record) -> None:
        """The record of a key that has none."""
        self.records[key] = record
        if key not in self.gone:
            self._born.add(key)

    def forget(self, key: Any) -> None:
        self.records.pop(key, None)
        self._recent.discard(key)
        self.timers.pop(key, None)
        self._expiries.pop(key, None)
        self._unsettled.discard(key)
        self.changed.add(key)
        if key in self._born:
            self._born.discard(key)
        else:
            self.gone.add(key)

    def next_timer(self, clock: TimerClock) -> datetime | None:
        """When the next timer of that clock is due."""
        waiting = self._waiting[clock]
        while waiting:
            at, _, key = waiting[0]
            if Timer(at, clock) in self.timers.get(key, ()):
                return at
            heapq.heappop(waiting)  # it was deleted, or its key forgotten
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

    def rest(self, rows: pa.Table, key: list[str], thaw: Thaw) -> None:
        """Begin with rows that rest instead of records."""
        self.layers, self._thaw = Layers(rows, key), thaw
        self.gone.clear()
        self._born.clear()

    def warm(self, keys: Iterable[Any]) -> None:
        """Bring the records of these keys in, as far as there are any."""
        if self.layers is None:
            return
        assert self._thaw is not None
        records, absent, gone = self.records, self._absent, self.gone  # what changed and is not gone has a record
        missing = [k for k in dict.fromkeys(keys) if k not in records and k not in absent and k not in gone]
        hashes = self._thaw.hashes(missing) if missing else None
        for layer in self.layers:
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
        assert self._thaw is not None and self.layers is not None and not self.changed
        for layer in self.layers:
            self.warm(self._thaw.keys(layer.rows))
        self.layers = None
        self._absent.clear()

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    @property
    def is_changed(self) -> bool:
        return bool(self.changed)

    @property
    def in_use(self) -> int:
        """How many keys have a record in memory."""
        return len(self.records)

    def bytes_each(self) -> int:
        """About how much memory a record takes, by the size of a few."""
        sample = [size_of(key, record) for key, record in islice(self.records.items(), 50)]
        return sum(sample) // len(sample) if sample else 1

    def changed_keys(self) -> list[Any]:
        """The keys whose rows changed; many of them in the order of `records`, as records that were made together lie together.

        What lies together comes into the processor's cache together: for half a million records that is half of the time.
        """
        changed, records, gone = self.changed, self.records, self.gone
        if len(changed) < max(MANY, len(records) // 8):
            return [key for key in changed if key in records or key in gone]
        keys = [key for key in records if key in changed]
        return (
            keys if len(keys) == len(changed) else keys + [key for key in changed if key in gone and key not in records]
        )

    def take_changes(self, copied: Callable[[Any], Any]) -> KeyedState:
        """What changed, as a state of its own with copies of the records. No key has changed then. Not with layers."""
        assert self.layers is None
        taken, records = KeyedState(), self.records
        taken.changed, taken.gone = self.changed, self.gone
        taken.records = {key: copied(records[key]) for key in self.changed if key in records}
        if self.timers:
            taken.timers = {key: set(self.timers[key]) for key in taken.records if key in self.timers}
        self.changed, self.gone, self._born = set(), set(), set()
        return taken

    def publish_changes(self) -> None:
        """The rows that changed were shown to readers: a key that is forgotten from now on leaves a row, which says so."""
        self._born.clear()

    def end_checkpoint(self, delta: pa.Table) -> None:
        """A checkpoint: what changed is in `delta`, which becomes a layer if there are any."""
        if self.layers is not None:
            alive = len(self)
            self._absent.clear()
            self.layers.add(delta, alive)
        self.changed.clear()
        self.gone.clear()
        self._born.clear()

    def cool(self, most: int) -> None:
        """Drop records, the oldest first, until at most so many are left. They all rest in layers.

        One that was used since it was last considered is spared once.
        """
        assert self.layers is not None and not self.changed
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


class InstanceState:
    """The one record of a component's instance; None if it never had one."""

    __slots__ = ("record", "saved")

    def __init__(self) -> None:
        self.record: Record | None = None
        self.saved: Record | None = None

    def __len__(self) -> int:
        return 0


State = KeyedState | InstanceState | LayeredTable | Table


def size_of(key: Any, record: Record) -> int:
    """About how many bytes a record takes in `KeyedState.records`, with its key and its place."""
    fields = [getattr(record, name) for name in record.__struct_fields__]
    values = sum(sys.getsizeof(value) for value in fields if not isinstance(value, int | float | bool | None))
    return 120 + sys.getsizeof(key) + sys.getsizeof(record) + 24 * len(fields) + values
