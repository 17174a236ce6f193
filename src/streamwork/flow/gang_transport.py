"""The transport of a task in a gang: objects between its own instances, parcels in files to and from other tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from streamwork.flow.channel import Channel
from streamwork.flow.inlet import Inlet
from streamwork.flow.outlet import Outlet
from streamwork.flow.parcel import Wire
from streamwork.flow.parcel_file import ParcelReader, ParcelWriter
from streamwork.flow.wiring import Place, channel_name, downstream, upstream
from streamwork.job import Layout


class FileOutlet(Outlet):
    """An outlet whose parcels go into files at once."""

    def __init__(self, wire: Wire, sender: Place, to: Place, attempt: str, folder: Path) -> None:
        super().__init__(wire, sender, to, attempt)
        self._writer = ParcelWriter(folder / self.name)

    def has_room(self, events: int = 1, size: int = 1) -> bool:
        return self._writer.has_room()

    def flush(self) -> None:
        """Send everything that waits."""
        self.pack()
        for parcel in self.ready():
            self._writer.write(parcel)

    def close(self) -> None:
        self._writer.close()


class GangTransport:
    def __init__(self, layout: Layout, mine: Collection[Place], folder: Path, attempt: str) -> None:
        """`mine` are the places of this task; `folder` is that of the gang's exchange."""
        wire = Wire(layout, rows=True)
        self._layout = layout
        self._memory: dict[tuple[Place, Place], Channel] = {}
        self._outlets: dict[tuple[Place, Place], FileOutlet] = {}
        self._inlets: dict[Place, Inlet] = {}
        self._readers: list[tuple[Inlet, ParcelReader]] = []
        for place in mine:
            foreign = [before for before in upstream(layout, place) if before not in mine]
            inlet = self._inlets[place] = Inlet(wire, foreign, place)
            self._readers += [(inlet, ParcelReader(folder / channel_name(before, place))) for before in foreign]
            for after in downstream(layout, place):
                if after in mine:
                    self._memory[place, after] = Channel(channel_name(place, after))
                else:
                    self._outlets[place, after] = FileOutlet(wire, place, after, attempt, folder)

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

    def receive(self) -> bool:
        """Bring what other tasks have sent into the channels. True if there was anything."""
        came = False
        for inlet, reader in self._readers:
            for parcel in reader.read():
                came = True
                for channel, item in inlet.unpack(parcel):
                    channel.send(item)
        return came

    def flush(self) -> None:
        """Send what waits for other tasks."""
        for outlet in self._outlets.values():
            outlet.flush()

    def close(self) -> None:
        for outlet in self._outlets.values():
            outlet.close()
        for _, reader in self._readers:
            reader.close()
