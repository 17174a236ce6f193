"""What is in doubt under at-most-once: input that was planned for an epoch that broke off.

What was planned is never read again, and instances write at once. So it is unknown which rows of an epoch that was not
prepared were written: all of its input may or may not have been delivered. The plan names that input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from streamwork.components.position import INBOX
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.manifest import Plan
from streamwork.epoch.participant import Participant
from streamwork.epoch.slices import by_report
from streamwork.job import Graph
from streamwork.wording import plural

if TYPE_CHECKING:
    from streamwork.epoch.footing import Footing

EVENTS = "events"
POLLED = "polled"  # a source that is read by report: where its slice ended was not reported
MOST_NAMED = 5


class InDoubt(msgspec.Struct, frozen=True):
    """Input of one epoch that broke off, in one partition of one source."""

    epoch: int
    fence: int
    source: str  # source/partition
    start: int
    end: int
    unit: str  # what `start` and `end` count

    @property
    def events(self) -> int | None:
        """How many events; None if that is unknown."""
        return self.end - self.start if self.unit == EVENTS else None


class Doubter(Protocol):
    def doubt(self, found: Sequence[InDoubt]) -> Sequence[InDoubt]:
        """Record input in doubt, and return the part that is new."""


class Doubts(Participant):
    """The input in doubt that a driver finds: that of earlier drivers, and that of its own epochs that broke off."""

    def __init__(self, graph: Graph, history: Doubter) -> None:
        self.found: list[InDoubt] = []
        self._graph = graph
        self._history = history

    def resume(self, footing: Footing) -> Sequence[str]:
        found = [*self.recovered(footing.planned, footing.killed), *self._note(list(self._claimed(footing)))]
        return lines(found)

    def _claimed(self, footing: Footing) -> Iterator[InDoubt]:
        """What instances may have read beyond the checkpoint, by their claims."""
        units = {node.id: node.component.unit for node in self._graph.planned}
        for name, end in sorted(footing.claimed.items()):
            start, unit = footing.at.positions[name], units[name.partition("/")[0]]
            if end > start:
                yield InDoubt(footing.at.epoch + 1, footing.fence - 1, name, start, end, unit)

    def recovered(self, plans: Sequence[Plan], killed: int | None) -> Sequence[InDoubt]:
        """The plans beyond the checkpoint that is built on. `killed` is the fence of a driver that was killed: its last epoch
        may have polled. A driver that polls has one epoch in flight, and idle epochs have plans, too. Returns the input that was
        not reported before.
        """
        last = max((plan.epoch for plan in plans if plan.fence == killed), default=None)
        return self._note([one for plan in plans for one in self._of(plan, reported=plan.epoch == last)])

    def abandoned(self, epoch: Epoch) -> None:
        self._note(list(self._of(epoch.plan)))

    def close(self, unprepared: Sequence[Epoch]) -> None:
        for epoch in unprepared:
            self.abandoned(epoch)

    def _note(self, found: list[InDoubt]) -> Sequence[InDoubt]:
        news = self._history.doubt(found) if found else ()
        self.found += news
        return news

    def _of(self, plan: Plan, reported: bool = True) -> Iterator[InDoubt]:
        if not self._graph.promise.at_most_once:
            return
        units = {node.id: node.component.unit for node in self._graph.planned} | {INBOX: "files"}
        for name, end in sorted(plan.end.items()):
            start, unit = plan.start[name], units.get(name.partition("/")[0])
            if unit is not None and end > start:
                yield InDoubt(plan.epoch, plan.fence, name, start, end, unit)
        polled = {node.id for node in self._graph.polled}  # what others read by report is claimed
        for source in sorted(polled & by_report(self._graph, plan)) if reported else ():
            yield InDoubt(plan.epoch, plan.fence, source, 0, 0, POLLED)


def lines(found: Iterable[InDoubt]) -> list[str]:
    """One line for the events that can be counted, one for the others."""
    known, ranges, polled = 0, list[InDoubt](), list[str]()
    sources: dict[str, None] = {}
    for one in sorted(found, key=lambda one: (one.source, one.start, one.epoch)):
        if one.unit == POLLED:
            polled.append(f"what {one.source} gave in epoch {one.epoch}")
        elif one.events is None:
            before = ranges[-1] if ranges else None
            if before is not None and before.source == one.source and before.end == one.start:
                ranges[-1] = msgspec.structs.replace(before, end=one.end)
            else:
                ranges.append(one)
        else:
            known += one.events
            sources[one.source.partition("/")[0]] = None
    doubt = "in epochs that broke off: they may or may not have been delivered"
    told = (
        [f"in doubt: {plural(known, 'event')} of {', '.join(sources)} {'was' if known == 1 else 'were'} {doubt}"]
        if known
        else []
    )
    unknown = [*(f"{one.unit} {one.start:,} to {one.end:,} of {one.source}" for one in ranges), *polled]
    if unknown:
        more = f" and {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
        told.append(f"in doubt: an unknown number of events ({', '.join(unknown[:MOST_NAMED])}{more}) were {doubt}")
    return told
