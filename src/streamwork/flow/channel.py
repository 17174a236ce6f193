"""Channels between instances, and the items that pass through them: data, watermarks, checkpoint events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

from streamwork.components.collector import MAIN
from streamwork.components.columns import Columns
from streamwork.flow.batch import Batch
from streamwork.flow.lineage import Array
from streamwork.job import Input

EVENT_BYTES = 200
"""The assumed size of an event that is an object: measuring it would cost more than sending it."""
_NOTHING = np.empty(0, np.int64)


class Part(NamedTuple):
    """A batch for one component of the chain at the other end."""

    through: Input
    to: str
    batch: Batch
    port: str = MAIN


class Advances(NamedTuple):
    """Advances of event time between the events of some batches."""

    moments: Array = _NOTHING  # each comes after the events up to this moment
    times: Array = _NOTHING  # in microseconds


NO_ADVANCES = Advances()


@dataclass(frozen=True, eq=False)
class Data:
    """Batches for one instance, and how the watermark of the sender advances between their events.

    Where the order between parts matters, or event time advances between events, the events carry moments.
    """

    epoch: int
    parts: tuple[Part, ...]
    advances: Advances = NO_ADVANCES

    def __len__(self) -> int:
        """How many events it holds."""
        return sum(len(part.batch) for part in self.parts)

    @property
    def size(self) -> int:
        """About how many bytes its events take."""
        return sum(_size(part.batch) for part in self.parts)


@dataclass(frozen=True)
class Watermark:
    """The sender expects no event that happened before this time."""

    epoch: int
    at: datetime
    resumed: bool = False  # where the sender begins: timers up to here have fired before


@dataclass(frozen=True)
class Idle:
    """All inputs of the sender are idle: it does not hold event time back until it wakes up."""

    epoch: int
    idle: bool  # False: it wakes up
    resumed: bool = False  # as in `Watermark`


@dataclass(frozen=True)
class CheckpointEvent:
    """Separates the last event of an epoch from the first of the next, in every channel."""

    epoch: int
    attempt: str  # of the sender: what it has sent belongs to this attempt


@dataclass(frozen=True)
class Aligned:
    """A checkpoint event that has come on all inputs, and the attempts of its senders."""

    epoch: int
    attempts: tuple[str, ...] = ()


Item = Data | Watermark | Idle | CheckpointEvent


class Bound(NamedTuple):
    """The most that may wait in a channel; None: no limit."""

    events: int | None = None
    bytes: int | None = None


class Channel:
    """From one instance to another, in order.

    A bound limits the events that wait: a sender asks `has_room` before it computes more, or uses `offer`. A channel that
    is empty takes data of any size. Watermarks and checkpoint events ignore bounds.
    """

    def __init__(self, name: str, bound: Bound | None = None) -> None:
        self.name = name
        self.bound = bound
        self.items: deque[Item] = deque()
        self.events = 0  # that wait
        self.bytes = 0

    def has_room(self, events: int = 1, size: int = 1) -> bool:
        """True if data of this many events and bytes may be sent."""
        if self.bound is None or not self.events:
            return True
        most_events, most_bytes = self.bound
        within = most_events is None or self.events + events <= most_events
        return within and (most_bytes is None or self.bytes + size <= most_bytes)

    def offer(self, item: Item) -> bool:
        """Send an item if there is room for it."""
        if isinstance(item, Data) and self.bound is not None and not self.has_room(len(item), item.size):
            return False
        self.send(item)
        return True

    def send(self, item: Item) -> None:
        """Send an item, whether or not there is room."""
        if self.bound is not None and isinstance(item, Data):
            self.events += len(item)
            self.bytes += item.size
        self.items.append(item)

    def receive(self) -> Item:
        """The next item; there must be one."""
        item = self.items.popleft()
        if self.bound is not None and isinstance(item, Data):
            self.events -= len(item)
            self.bytes -= item.size
        return item


def _size(batch: Batch) -> int:
    if isinstance(batch.given, Columns):
        return int(batch.given.batch.nbytes)
    return EVENT_BYTES * len(batch)
