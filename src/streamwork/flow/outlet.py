"""The sending end of a channel whose other end is in another process: gathers items into parcels worth their overhead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamwork.flow.channel import Channel, CheckpointEvent, Data, Item, Watermark
from streamwork.flow.parcel import Head, Kind, Parcel, Wire
from streamwork.flow.wiring import Place, channel_name

PIECE = 16_384
"""Events to a parcel: a few hundred kilobytes of small ones."""

MOST_BYTES = 4_000_000
"""A parcel of large events is divided until it is below this, or down to one event."""

MOST_ITEMS = 50_000


class Outlet(Channel):
    """From one instance, in one attempt, to another. `take` gives the parcels that are ready."""

    def __init__(self, wire: Wire, sender: Place, to: Place, attempt: str) -> None:
        super().__init__(channel_name(sender, to))
        self._wire = wire
        self._sender = sender
        self._to = to
        self._attempt = attempt
        self._waiting: list[Data | Watermark] = []
        self._events = 0
        self._ready: list[Parcel] = []
        self._number = 0

    def send(self, item: Item) -> None:
        if isinstance(item, CheckpointEvent):
            self._pack()
            self._ready.append(Parcel(self._head(Kind.CHECKPOINT, item.epoch)))
            return
        self._waiting.append(item)
        self._events += len(item.events) if isinstance(item, Data) else 0
        if self._events >= PIECE or len(self._waiting) >= MOST_ITEMS:
            self._pack()

    def take(self) -> list[Parcel]:
        ready, self._ready = self._ready, []
        return ready

    def failed(self, epoch: int) -> Parcel:
        """Takes everything back that was sent."""
        return Parcel(Head(Kind.FAILED, epoch, self._sender, self._attempt, self._to))

    def _pack(self) -> None:
        self._ready += self._parcels(self._waiting)
        self._waiting, self._events = [], 0

    def _parcels(self, items: Sequence[Data | Watermark]) -> Iterator[Parcel]:
        if not items:
            return
        packed = self._wire.pack(items)
        if (packed is None or len(packed[1]) > MOST_BYTES) and (halves := _halves(items)) is not None:
            for half in halves:
                yield from self._parcels(half)
            return
        assert packed is not None, "one event is one batch"
        told, content = packed
        yield Parcel(self._head(Kind.EVENTS, items[0].epoch, **told), content)

    def _head(self, kind: Kind, epoch: int, **told: tuple[tuple[int, int], ...]) -> Head:
        number, self._number = self._number, self._number + 1
        return Head(kind, epoch, self._sender, self._attempt, self._to, number, **told)


def _halves(items: Sequence[Data | Watermark]) -> tuple[Sequence[Data | Watermark], Sequence[Data | Watermark]] | None:
    """Two parts of about the same size; None if there is one event only."""
    if len(items) > 1:
        return items[: len(items) // 2], items[len(items) // 2 :]
    data = items[0]
    if not isinstance(data, Data) or len(data.events) < 2:
        return None
    middle = len(data.events) // 2
    first, second = data.events[:middle], data.events[middle:]
    return [Data(data.epoch, data.through, data.to, first)], [Data(data.epoch, data.through, data.to, second)]
