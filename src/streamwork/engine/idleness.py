"""Idle source partitions (`idle_after`).

A partition is idle when it has brought no event for so long, by the processing time of plans. Then it does not hold the minimum
back until its next event. The minimum never goes back: it is stored with each checkpoint, beside the time at which a partition
last brought an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from streamwork.flow.progress import Progress
from streamwork.job import Node


class Idleness(msgspec.Struct, frozen=True, array_like=True):
    """The state of one partition of a source with `idle_after`, as a checkpoint stores it. Times are in microseconds."""

    active: int  # processing time when it last brought an event, or was first expected to
    floor: int | None  # the minimum of its instance
    idle: bool


class Idling:
    """The partitions of one instance that may become idle."""

    def __init__(self, sources: Iterable[Node]) -> None:
        self._after = {node.id: node.idle_after for node in sources if node.idle_after is not None}
        self._active: dict[str, int | None] = {}  # source/partition -> processing time; None: not expected so far

    def resume(self, partitions: Iterable[str], known: Mapping[str, Idleness]) -> None:
        """Go on where a checkpoint has stored it; `partitions` are all that the instance reads."""
        for name in partitions:
            if name.partition("/")[0] in self._after:
                self._active[name] = known[name].active if name in known else None

    def came(self, name: str, now: int, progress: Progress) -> None:
        """A partition has brought events."""
        if name.partition("/")[0] in self._after:
            self._active[name] = now
            progress.wake(name)

    def tick(self, now: int, progress: Progress) -> None:
        """Processing time has come to `now`: mark partitions as idle."""
        for name, last in self._active.items():
            if last is None:
                self._active[name] = now
            elif not progress.is_idle(name) and now >= last + self._after[name.partition("/")[0]]:
                progress.mark_idle(name)

    def next_time(self, progress: Progress) -> int | None:
        """When the next partition becomes idle."""
        waiting = [
            last + self._after[name.partition("/")[0]]
            for name, last in self._active.items()
            if last is not None and not progress.is_idle(name)
        ]
        return min(waiting, default=None)

    def stored(self, source: str, progress: Progress) -> dict[str, Idleness]:
        """By partition, to be stored with a checkpoint."""
        split = ((name, name.partition("/"), last) for name, last in self._active.items() if last is not None)
        return {
            partition: Idleness(last, progress.minimum, progress.is_idle(name))
            for name, (mine, _, partition), last in split
            if mine == source
        }
