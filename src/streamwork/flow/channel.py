"""Channels between instances, and the items that pass through them: data, watermarks, checkpoint events."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np

from streamwork.components.collector import MAIN
from streamwork.components.columns import Columns
from streamwork.flow.batch import Batch
from streamwork.flow.gauge import Gauge
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
    began: float | None = None
    """In live mode: when a source has read the events, the oldest ones, in seconds since 1970."""

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
    began: float | None = None  # in live mode: when a source has read the event that made it advance


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
    sent: int | None = None  # events of the epoch for this channel, dropped ones included; None: not known
    dropped: tuple[tuple[str, int], ...] = ()  # of these, by the component that they were for


@dataclass(frozen=True)
class Aligned:
    """A checkpoint event that has come on all inputs, and the attempts of its senders."""

    epoch: int
    attempts: tuple[str, ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()  # component -> events that were dropped on the way to it


Item = Data | Watermark | Idle | CheckpointEvent


class Channel:
    """From one instance to another, in order.

    A gauge limits the events that wait: a sender asks `has_room` before it computes more. Watermarks and checkpoint events ignore
    it. Under `drop`, events are dropped while it is full; their advances of event time pass.

    The checkpoint event says how many events were sent since the last one, and which were dropped:
    sent == received + dropped       CLOSED: per channel and epoch, checked by the receiver (`flow.dispatcher`)
    """

    def __init__(self, name: str, gauge: Gauge | None = None) -> None:
        self.name = name
        self.gauge = gauge
        self.items: deque[Item] = deque()
        self.came = 0  # events received since the last checkpoint event
        self.taken = 0  # events received in all
        self._sent = 0  # events sent since the last checkpoint event, dropped ones included
        self._dropped: Counter[str] = Counter()  # of these, by component

    def has_room(self) -> bool:
        """False if the sender is to process no more events."""
        return self.gauge is None or not self.gauge.stops_sender

    def send(self, item: Item) -> None:
        """Send an item, whether or not there is room."""
        if self.gauge is None:
            self._put(item)
        elif isinstance(item, Data):
            events = len(item)
            self._sent += events
            self.gauge.sent += events
            if not self.gauge.drops:
                self.gauge.add(events, self._size(item))
                self._put(item)
                return
            self.gauge.dropped += events
            for part in item.parts:
                self._dropped[part.to] += len(part.batch)
            if len(item.advances.times):
                self._put(Data(item.epoch, (), item.advances, item.began))
        elif isinstance(item, CheckpointEvent):
            self._put(replace(item, sent=self._sent, dropped=tuple(sorted(self._dropped.items()))))
            self._sent, self._dropped = 0, Counter()
        else:
            self._put(item)

    def receive(self) -> Item:
        """The next item; there must be one."""
        item = self.items.popleft()
        if isinstance(item, Data):
            events = len(item)
            self.came += events
            self.taken += events
            if self.gauge is not None:
                self.gauge.take(events, self._size(item))
        return item

    def _put(self, item: Item) -> None:
        self.items.append(item)

    def _size(self, item: Data) -> int:
        return item.size


def _size(batch: Batch) -> int:
    if isinstance(batch.given, Columns):
        return int(batch.given.batch.nbytes)
    return EVENT_BYTES * len(batch)
