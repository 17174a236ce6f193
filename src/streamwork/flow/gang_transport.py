"""The transport of a task in a gang: objects between its own instances, parcels in files to and from other tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from streamwork.flow.brakes import BrakeFiles, Brakes
from streamwork.flow.channel import Channel, Data
from streamwork.flow.credit import CreditReader, CreditWriter
from streamwork.flow.drain import Drain
from streamwork.flow.gauge import CHANNEL_BOUND, Bound, Gauge
from streamwork.flow.inlet import Inlet
from streamwork.flow.outlet import Outlet
from streamwork.flow.parcel import Wire
from streamwork.flow.parcel_file import ParcelReader, ParcelWriter
from streamwork.flow.wiring import Place, channel_name, downstream, upstream
from streamwork.job import Layout
from streamwork.job.backpressure import Backpressure

CREDIT_EVENTS = 256
"""A receiver writes its credit after so many events, or when nothing waits."""


class FileOutlet(Outlet):
    """An outlet whose parcels go into files. What waits there, and at the receiver, is known by its credit (`flow.credit`)."""

    def __init__(self, wire: Wire, sender: Place, to: Place, attempt: str, folder: Path, gauge: Gauge) -> None:
        super().__init__(wire, sender, to, attempt, gauge)
        self._credit = CreditReader(folder / self.name, gauge)
        self._writer = ParcelWriter(folder / self.name)

    def has_room(self) -> bool:
        return super().has_room() and self._writer.has_room()

    def flush(self) -> None:
        """Send everything that waits."""
        self.pack()
        for parcel in self.ready():
            self._writer.write(parcel)
            self._credit.sent(parcel.head.events, len(parcel.content))
        self._credit.settle()

    def close(self) -> None:
        self._writer.close()
        self._credit.close()

    def _size(self, item: Data) -> int:
        return 0  # that of its parcel counts


class GangTransport:
    def __init__(
        self,
        layout: Layout,
        mine: Collection[Place],
        folder: Path,
        attempt: str,
        task: int,
        tasks: int,
        now: Callable[[], float],
        bound: Bound = CHANNEL_BOUND,
    ) -> None:
        """`mine` are the places of this task, number `task` of `tasks`; `folder` is that of the gang's exchange. `now` gives
        seconds since 1970.
        """
        wire = Wire(layout, rows=True)
        self._layout = layout
        self.gauges: dict[tuple[Place, Place], Gauge] = {}
        self._memory: dict[tuple[Place, Place], Channel] = {}
        self._outlets: dict[tuple[Place, Place], FileOutlet] = {}
        self._inlets: dict[Place, Inlet] = {}
        self._readers: list[tuple[Inlet, ParcelReader]] = []
        self._credits: list[tuple[Channel, CreditWriter]] = []
        for place in mine:
            step = max(1, min(CREDIT_EVENTS, (bound.of(layout.buffers[place[0]]).events or 0) // 8))
            foreign = [before for before in upstream(layout, place) if before not in mine]
            inlet = self._inlets[place] = Inlet(wire, foreign, place)
            for before in foreign:
                channel = folder / channel_name(before, place)
                self._readers.append((inlet, ParcelReader(channel)))
                self._credits.append((inlet.channels[before], CreditWriter(channel, step)))
            for after in downstream(layout, place):
                policy, limit = layout.policies[after[0]], bound.of(layout.buffers[after[0]])
                drain = None if policy is Backpressure.DROP else Drain()
                gauge = self.gauges[place, after] = Gauge(limit, policy, now, drain)
                if after in mine:
                    self._memory[place, after] = Channel(channel_name(place, after), gauge)
                else:
                    self._outlets[place, after] = FileOutlet(wire, place, after, attempt, folder, gauge)
        self._brakes = Brakes(layout, self.gauges)
        self._brake_files = BrakeFiles(layout, folder, task, tasks)

    def inputs(self, place: Place) -> Mapping[Place, Channel]:
        inlet = self._inlets[place]
        return {
            before: inlet.channels[before] if before in inlet.channels else self._memory[before, place]
            for before in upstream(self._layout, place)
        }

    def outputs(self, place: Place) -> Mapping[Place, Channel]:
        return {
            after: self._memory.get((place, after)) or self._outlets[place, after]
            for after in downstream(self._layout, place)
        }

    def holds(self, source: Place) -> bool:
        return self._brakes.holds(source) or self._brake_files.holds(source)

    def receive(self) -> bool:
        """Bring what other tasks have sent into the channels. True if there was anything."""
        came = False
        for channel, credit in self._credits:
            credit.write(channel.taken, not channel.items)
        for inlet, reader in self._readers:
            for parcel in reader.read():
                came = True
                for channel, item in inlet.unpack(parcel):
                    channel.send(item)
        self._brake_files.read()
        return came

    def flush(self) -> None:
        """Send what waits for other tasks."""
        for outlet in self._outlets.values():
            outlet.flush()
        self._brake_files.write(self._brakes.full_chains())

    def close(self) -> None:
        for outlet in self._outlets.values():
            outlet.close()
        for _, reader in self._readers:
            reader.close()
        for _, credit in self._credits:
            credit.close()
        self._brake_files.close()
