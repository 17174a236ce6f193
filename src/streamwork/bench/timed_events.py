"""Events with times that advance from epoch to epoch, slightly out of order, and names for their keys."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.bench.epochs import Array
from streamwork.components import Event
from streamwork.components.keys import GROUPS, Key, instance_of

BEGIN = 1_767_225_600_000_000  # 2026-01-01, in microseconds: a multiple of each window's size
DAY = 86_400_000_000
TIME = pa.timestamp("us", tz="UTC")
KEY = "user"
LATENESS = "5s"
PARALLELISM = 2


class TimedEvents(NamedTuple):
    """The columns of some events. Ids count all events of a stream."""

    ids: Array
    keys: Array
    """The number of each event's key."""
    times: Array
    quarters: Array
    """The price of each event in quarters: their sums are exact in any order."""

    @property
    def prices(self) -> Array:
        return self.quarters / 4

    @staticmethod
    def concat(parts: list[TimedEvents]) -> TimedEvents:
        return TimedEvents(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class TimedStream:
    """A stream of events, epoch after epoch. Each epoch covers `span` microseconds of event time."""

    def __init__(self, seed: int, keys: int, rows: int, span: int, disorder: int) -> None:
        """An event is at most `disorder` microseconds behind the latest one before it."""
        self._rng = np.random.default_rng(seed)
        self._keys, self._rows, self._span, self._disorder = keys, rows, span, disorder
        self.epochs: list[TimedEvents] = []

    def next(self) -> TimedEvents:
        rows, rng, number = self._rows, self._rng, len(self.epochs)
        due = BEGIN + self._disorder + number * self._span + np.arange(rows) * self._span // rows
        found = TimedEvents(
            number * rows + np.arange(rows),
            rng.integers(0, self._keys, rows),
            due - rng.integers(0, self._disorder + 1, rows),
            rng.integers(0, 4_000, rows),
        )
        self.epochs.append(found)
        return found

    def all(self) -> TimedEvents:
        """Everything so far, without closing events."""
        return TimedEvents.concat(self.epochs)

    def closing(self, number: int) -> TimedEvents:
        """An event of each of the first two keys, at least a day after all others: it closes every window before it."""
        keys = np.arange(min(2, self._keys))
        times = np.full(len(keys), self.closed_from + number * DAY)
        return TimedEvents(-1 - keys, keys, times, np.zeros(len(keys), np.int64))

    @property
    def closed_from(self) -> int:
        """The time of the first closing event. Results from then on do not count."""
        return BEGIN + (1 + (len(self.epochs) * self._span + self._disorder) // DAY) * 2 * DAY


def key_names(count: int, field: str, instances: int) -> list[str]:
    """Names of keys that are evenly distributed over the instances: two successive ones are never in the same, if there are two."""
    key, found = Key((field,)), list[list[str]]([] for _ in range(instances))
    number = 0
    while min(map(len, found)) < count / instances:
        name = f"{field}-{number:07d}"
        number += 1
        found[instance_of(key.groups([name], GROUPS)[0], instances)].append(name)
    return [name for row in zip(*found, strict=False) for name in row][:count]


def as_batch(event: type[Event], events: TimedEvents, names: pa.Array) -> pa.RecordBatch:
    """The rows of a type whose fields are an id, a time, a key and a price. `names` are those of the keys."""
    times = pa.array(events.times, pa.int64()).cast(TIME)
    columns = [pa.array(events.ids), times, names.take(pa.array(events.keys)), pa.array(events.prices)]
    return pa.RecordBatch.from_arrays(columns, names=list(event.__struct_fields__))
