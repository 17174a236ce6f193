"""Transports: how the items of a channel get from one instance to another.

MemoryTransport   both ends are in one process, and objects are passed
ParcelTransport   one end of each channel is here, the other in another process, and parcels are passed
GangTransport     of a task in a gang (`flow.gang_transport`): both, with parcels in files
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import time
from typing import Protocol

from streamwork.flow.brakes import Brakes
from streamwork.flow.channel import Channel, Item
from streamwork.flow.gauge import CHANNEL_BOUND, Bound, Gauge
from streamwork.flow.inlet import Inlet
from streamwork.flow.outlet import Outlet
from streamwork.flow.parcel import Parcel, Wire
from streamwork.flow.wiring import Place, channel_name, downstream, upstream
from streamwork.job import Layout


class Transport(Protocol):
    """Gives each instance its ends of channels. What is sent comes out in order, each item once."""

    def inputs(self, place: Place) -> Mapping[Place, Channel]:
        """By sender."""

    def outputs(self, place: Place) -> Mapping[Place, Channel]:
        """By receiver."""

    def holds(self, source: Place) -> bool:
        """True if this instance of a source is to read nothing for now."""


class MemoryTransport:
    """Between instances of one process. `bound` holds for every channel to a chain without one of its own."""

    def __init__(
        self, layout: Layout, places: Iterable[Place], bound: Bound = CHANNEL_BOUND, now: Callable[[], float] = time
    ) -> None:
        """`now` gives seconds since 1970."""
        self._layout = layout
        self.gauges = {
            (before, place): Gauge(bound.of(layout.buffers[place[0]]), layout.policies[place[0]], now)
            for place in places
            for before in upstream(layout, place)
        }
        self._channels = {ends: Channel(channel_name(*ends), gauge) for ends, gauge in self.gauges.items()}
        self._brakes = Brakes(layout, self.gauges)

    def inputs(self, place: Place) -> Mapping[Place, Channel]:
        return {before: self._channels[before, place] for before in upstream(self._layout, place)}

    def outputs(self, place: Place) -> Mapping[Place, Channel]:
        return {after: self._channels[place, after] for after in downstream(self._layout, place)}

    def holds(self, source: Place) -> bool:
        return self._brakes.holds(source)


class ParcelTransport:
    """Between one attempt of one instance and instances in other processes."""

    def __init__(self, layout: Layout, place: Place, attempt: str, rows: bool = False) -> None:
        """With `rows`, a few events go without columns (`flow.parcel.Wire`)."""
        wire = Wire(layout, rows)
        self._place = place
        self._inlet = Inlet(wire, upstream(layout, place), place)
        self._outlets = {to: Outlet(wire, place, to, attempt) for to in downstream(layout, place)}

    def inputs(self, place: Place) -> Mapping[Place, Channel]:
        assert place == self._place
        return self._inlet.channels

    def outputs(self, place: Place) -> Mapping[Place, Channel]:
        assert place == self._place
        return self._outlets

    def holds(self, source: Place) -> bool:
        return False

    def unpack(self, parcel: Parcel) -> Iterator[tuple[Channel, Item]]:
        """The items of a parcel that has arrived, and their channel."""
        return self._inlet.unpack(parcel)

    def finish(self) -> None:
        """The input is complete. Raises if a parcel is missing."""
        self._inlet.finish()

    def flush(self) -> None:
        """Let nothing wait to become a parcel."""
        for outlet in self._outlets.values():
            outlet.pack()

    def ready(self) -> Iterator[Parcel]:
        """The parcels that are to be sent."""
        for outlet in self._outlets.values():
            yield from outlet.ready()

    def failed(self, epoch: int) -> Iterator[Parcel]:
        """Parcels that cancel everything that was sent."""
        for outlet in self._outlets.values():
            yield outlet.failed(epoch)
