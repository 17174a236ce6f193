"""The sending end of a channel to another process: gathers items into parcels of a useful size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streamwork.flow.channel import Advances, Channel, CheckpointEvent, Data, Idle, Item, Watermark
from streamwork.flow.gauge import Gauge
from streamwork.flow.parcel import Head, Kind, Parcel, TimedHead, Wire
from streamwork.flow.wiring import Place, channel_name

PIECE = 16_384
"""Events per parcel: a few hundred kilobytes of small ones."""

MOST_BYTES = 4_000_000
"""A larger parcel is divided until it is below this, or down to one event."""

MOST_ITEMS = 50_000


class Outlet(Channel):
    """From one instance, in one attempt, to another. `ready` gives the finished parcels."""

    def __init__(self, wire: Wire, sender: Place, to: Place, attempt: str, gauge: Gauge | None = None) -> None:
        super().__init__(channel_name(sender, to), gauge)
        self._wire = wire
        self._sender = sender
        self._to = to
        self._attempt = attempt
        self._waiting: list[Data | Watermark] = []
        self._count = 0
        self._ready: list[Parcel] = []
        self._number = 0

    def _put(self, item: Item) -> None:
        if isinstance(item, CheckpointEvent):
            self.pack()
            head = self._head(Kind.CHECKPOINT, item.epoch, sent=item.sent, dropped=item.dropped)
            self._ready.append(Parcel(head))
            return
        if isinstance(item, Idle):
            self.pack()
            self._ready.append(Parcel(self._head(Kind.IDLE, item.epoch, idle=item.idle, is_resumed=item.resumed)))
            return
        if isinstance(item, Watermark) and item.resumed:
            self.pack()  # it comes before everything else of its parcel
        self._waiting.append(item)
        self._count += len(item) if isinstance(item, Data) else 0
        if self._count >= PIECE or len(self._waiting) >= MOST_ITEMS:
            self.pack()

    def ready(self) -> list[Parcel]:
        """The parcels that were finished since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def failed(self, epoch: int) -> Parcel:
        """Cancels everything that was sent."""
        return Parcel(Head(Kind.FAILED, epoch, self._sender, self._attempt, self._to))

    def pack(self) -> None:
        """Make parcels of everything that waits."""
        self._ready += self._parcels(self._waiting)
        self._waiting, self._count = [], 0

    def _parcels(self, items: Sequence[Data | Watermark]) -> Iterator[Parcel]:
        if not items:
            return
        packed = self._wire.pack(items)
        if (packed is None or len(packed[1]) > MOST_BYTES) and (halves := _halves(items)) is not None:
            for half in halves:
                yield from self._parcels(half)
            return
        assert packed is not None, "one event is one batch"
        fields, content = packed
        yield Parcel(self._head(Kind.EVENTS, items[0].epoch, **fields), content)

    def _head(self, kind: Kind, epoch: int, **fields: Any) -> Head:
        number, self._number = self._number, self._number + 1
        made = TimedHead if "began" in fields else Head
        return made(kind, epoch, self._sender, self._attempt, self._to, number, **fields)


def _halves(items: Sequence[Data | Watermark]) -> tuple[Sequence[Data | Watermark], Sequence[Data | Watermark]] | None:
    """Two parts of about the same size; None if there is one event only."""
    if len(items) > 1:
        return items[: len(items) // 2], items[len(items) // 2 :]
    data = items[0]
    if not isinstance(data, Data) or len(data) < 2:
        return None
    first, second = _divided(data)
    return [first], [second]


def _divided(data: Data) -> tuple[Data, Data]:
    """By moment, where there are several; else by part; else in the middle."""
    parts, advances = data.parts, data.advances
    known = [part.batch.moments for part in parts if part.batch.moments is not None]
    assert len(known) in (0, len(parts)), "all are ordered, or none"
    if known:
        every = np.sort(np.concatenate(known))
        if every[0] < every[-1]:
            last = int(every.searchsorted(every[-1], "left"))
            middle = every[min(last, len(every) // 2) - 1]
            ends = [int(moments.searchsorted(middle, "right")) for moments in known]
            until = int(np.searchsorted(advances.moments, middle, "right"))
            before = tuple(p._replace(batch=p.batch[:end]) for p, end in zip(parts, ends, strict=True) if end)
            after = tuple(
                p._replace(batch=p.batch[end:]) for p, end in zip(parts, ends, strict=True) if end < len(p.batch)
            )
            early, late = _split(advances, until)
            return Data(data.epoch, before, early, data.began), Data(data.epoch, after, late, data.began)
    until = int(np.searchsorted(advances.moments, known[0][0], "left")) if known else 0
    early, late = _split(advances, until)
    if len(parts) > 1:
        half = len(parts) // 2
        return Data(data.epoch, parts[:half], early, data.began), Data(data.epoch, parts[half:], late, data.began)
    (part,) = parts
    half = len(part.batch) // 2
    first = Data(data.epoch, (part._replace(batch=part.batch[:half]),), early, data.began)
    return first, Data(data.epoch, (part._replace(batch=part.batch[half:]),), late, data.began)


def _split(advances: Advances, at: int) -> tuple[Advances, Advances]:
    moments, times = advances
    return Advances(moments[:at], times[:at]), Advances(moments[at:], times[at:])
