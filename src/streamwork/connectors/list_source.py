"""A list of events as a source: for tests and first steps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from streamwork.components import Event, OffsetSource, Slice, Start
from streamwork.components.columns import to_batches
from streamwork.components.source import worth_extending
from streamwork.errors import WrongUse

E = TypeVar("E", bound=Event)
PIECE = 10_000
KNOWN_BY = 1_000  # number of events by which a list is recognised


class ListSource(OffsetSource[E], Generic[E]):
    """Reads the events of a list once, and ends. The offset is the index in the list."""

    bounded = True
    unit = "events"

    def __init__(
        self, events: Sequence[E], event: type[E] | None = None, max_events: int = 200_000, start: Start = "stored"
    ) -> None:
        if event is None and not events:
            raise WrongUse(
                "SW-TYPE-MISSING", "the type of the events of an empty list is unknown", "add event=YourEvent"
            )
        self.event = event if event is not None else type(events[0])
        self.max_events = max_events
        self.start = start
        self._events = list(events)
        self._marks: dict[int, str] = {}
        to_batches(self.event, self._events, "ListSource")  # checks every value

    def partitions(self) -> list[str]:
        return ["0"]

    def mark(self, partition: str, end: int) -> str | None:
        """A hash of the first events: the list may be longer at the next start."""
        count = min(end, KNOWN_BY)
        if count not in self._marks:
            found = hashlib.sha256(repr(self._events[:count]).encode(errors="backslashreplace")).hexdigest()
            self._marks[count] = f"{count}:{found}"
        return self._marks[count]

    def extended(self, partition: str, mark: str, end: int) -> str:
        count, more = int(mark.partition(":")[0]), min(end, KNOWN_BY)
        if not worth_extending(count, more, KNOWN_BY) or self.mark(partition, count) != mark:
            return mark
        return self.mark(partition, more) or mark

    def recognises(self, partition: str, mark: str) -> bool:
        """Compare the first events. A list that is shorter than the position is accepted: no event of it will be read."""
        count = int(mark.partition(":")[0])
        return count > len(self._events) or self.mark(partition, count) == mark

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        return {partition: min(len(self._events), start + limit) for partition, start in starts.items()}

    def has_more(self, ends: Mapping[str, int]) -> bool:
        return any(end < len(self._events) for end in ends.values())

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        for at in range(start, end, PIECE):
            yield Slice(self._events[at : min(at + PIECE, end)], at)
