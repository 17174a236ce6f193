"""An input of a simulated run: events with markers among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from streamwork.components import OffsetSource, Slice
from streamwork.components.columns import to_batches
from streamwork.engine import InstanceLost
from streamwork.testing.markers import Advance, Crash, Lose, Marker, Pause, SetClock


class Script(OffsetSource[Any]):
    """A list in one or several partitions, read in small pieces. Reading a marker executes it."""

    bounded = True

    def __init__(
        self,
        event: type[Any],
        items: Sequence[Any],
        partitions: int,
        max_events: int,
        crash: Callable[[], None],
        advance: Callable[[float], None],
        set_clock: Callable[[float], None],
    ) -> None:
        self.event = event
        self.max_events = max_events
        self._crash, self._advance, self._set_clock = crash, advance, set_clock
        self._events: list[list[Any]] = [[] for _ in range(partitions)]
        self._markers: dict[tuple[int, int], list[Marker]] = {}
        for item in items:
            partition = sum(len(events) for events in self._events) % partitions
            if isinstance(item, Marker):
                self._markers.setdefault((partition, len(self._events[partition])), []).append(item)
            else:
                self._events[partition].append(item)
        for events in self._events:
            to_batches(event, events, "input")  # checks every value as it enters

    def __deepcopy__(self, memo: Any) -> Script:
        return self  # all readers share it, so that a marker is executed once

    def partitions(self) -> list[str]:
        return [str(number) for number in range(len(self._events))]

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        return {partition: self._end(int(partition), start, limit) for partition, start in starts.items()}

    def latest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        """The ends of the input. No marker is executed: nothing is read."""
        return {partition: len(self._events[int(partition)]) for partition in partitions}

    def has_more(self, ends: Mapping[str, int]) -> bool:
        return any(end < len(self._events[int(partition)]) for partition, end in ends.items())

    def _end(self, number: int, start: int, limit: int) -> int:
        for at in range(start, min(len(self._events[number]) + 1, start + limit)):
            waiting = self._markers.get((number, at), [])
            while waiting and isinstance(marker := waiting[0], Advance | SetClock):
                waiting.pop(0)
                (self._advance if isinstance(marker, Advance) else self._set_clock)(marker.seconds)
        return min(len(self._events[number]), start + limit)

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        number = int(partition)
        for at in range(start, end):
            waiting = self._markers.get((number, at), [])
            while waiting and isinstance(waiting[0], Crash | Pause | Lose):
                marker = waiting.pop(0)
                if isinstance(marker, Crash):
                    self._crash()
                elif isinstance(marker, Pause):
                    self._advance(marker.seconds)
                else:
                    raise InstanceLost
            yield Slice([self._events[number][at]], at)
