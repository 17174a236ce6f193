"""Step 1 of an epoch: its slices are chosen, and the plan is durable before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from streamwork.components import Position
from streamwork.components.position import CLOCK
from streamwork.engine import EndKnown
from streamwork.epoch.claims import Claims, within_input
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.history.lag import InputEnds
from streamwork.epoch.identities import Identities
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.participant import Participant
from streamwork.epoch.recovery.catch_up import Route
from streamwork.epoch.redelivery import Redelivery
from streamwork.epoch.reported import newest_files
from streamwork.epoch.sizing import Sizing
from streamwork.epoch.slices import (
    Begins,
    Most,
    Partitions,
    begins,
    by_report,
    ends,
    fixed,
    known_ends,
    max_events,
    share_of,
    skips,
    starts,
)
from streamwork.epoch.store import Store
from streamwork.job import Graph

if TYPE_CHECKING:
    from streamwork.epoch.draft import ManifestDraft
    from streamwork.epoch.footing import Footing


_Polled = dict[str, tuple[dict[str, int], dict[str, str]]]
"""Source without offsets -> its position, and the newest file of each instance's state."""


class Goal(msgspec.Struct, frozen=True):
    """Where the input ended when a run began that catches up and then ends."""

    ends: Position
    tick: int

    def of(self, source: str) -> Position:
        """The part of one source."""
        return Position({f"{source}/{partition}": at for partition, at in self.ends.of(source).items()})

    def left(self, start: Position, end: Position) -> Position:
        """`end`, without partitions that have reached the goal. Offsets are not cut: a record may extend across the goal."""
        done = {name for name in end if start[name] >= self.ends[name]}
        return Position(
            {name: start[name] if name in done else at for name, at in end.items() if name in start or name not in done}
        )


class Planner(Participant):
    def __init__(
        self,
        graph: Graph,
        store: Store,
        redelivery: Redelivery,
        input_ends: InputEnds,
        now: Callable[[], int],
        ends_known: EndKnown = EndKnown.BY_PLAN,
        claims: Claims | None = None,
        sizing: Sizing | None = None,
    ) -> None:
        """`now` returns microseconds since 1970. `ends_known` is how the host reads sources with offsets. Under at-most-once what
        was taken is never read again: they are read by plan, which says what that is, unless instances claim what they read
        (`claims`). `sizing` limits slices besides `max_events`.
        """
        chosen = EndKnown.BY_PLAN if graph.promise.at_most_once and claims is None else ends_known
        self._claims = claims
        self._sizing = sizing
        self.most: Most = max_events if sizing is None else sizing.most
        self._records_ticks = claims is None or graph.promise.exactly_once
        self._by_report = tuple(node.id for node in graph.planned) if chosen is EndKnown.BY_REPORT else ()
        self.limited = False
        """True if the last plan could not take all the input that was there."""
        self.next_tick: int | None = 0
        """When the next processing-time timer is due. After a start that is unknown, so the first epoch finds out."""
        self.partitions: Partitions
        """As of the last plan."""
        self._fixed = frozenset[str]()
        self.identities = Identities(graph, store)
        self._graph = graph
        self._store = store
        self._redelivery = redelivery
        self._input_ends = input_ends
        self._now = now
        self._fence = 0
        self._next = 0
        self._route = Route()
        self._latest = Position()  # where sources with `start="latest"` begin in this run
        self.skipped: dict[str, tuple[int, int]] = {}
        """What these skip: source/partition -> from, to."""
        self._lost = Position()
        self._idle: Plan | None = None  # the last plan, if its epoch was idle
        self._goal: Goal | None = None
        self.unasked: tuple[str, ...] = ()
        """Sources without offsets that are no longer asked: a run that catches up asks each once."""
        self._asked_once = False  # all sources without offsets, in an epoch of this driver
        self._polled: _Polled = {}
        self._exhausted = False  # True if the last epoch found nothing in sources without offsets

    def resume(self, footing: Footing) -> Sequence[str]:
        self._fence, self._lost = footing.fence, footing.lost
        self._latest = skips(self._graph)
        self._fixed = fixed(self._graph)
        self._next = self._store.newest_number() + 1
        self.identities.resume()
        self._polled = self._polled_by(footing.at)
        before = footing.at.positions.furthest(footing.lost)
        begun = {name: (before[name], offset) for name, offset in self._latest.items()}
        self.skipped = {name: (was, offset) for name, (was, offset) in begun.items() if was < offset}
        return [
            f"{name}: offsets {was:,} to {to:,} are skipped, it starts at the latest"
            for name, (was, to) in self.skipped.items()
        ]

    def catch_up(self, route: Route) -> None:
        """After a start that fell back: take this route to the sinks that are ahead."""
        self._route = route

    def end_where_input_ends(self, at: Position) -> None:
        """Plan the present input from here on, and nothing beyond it: later input and later timers are not processed.
        A source without offsets is polled in one epoch; a bounded one until it emits nothing.
        """
        now = Partitions.of(self._graph, self._fixed)
        start = starts(self._graph, now, at.furthest(self._lost), self._latest)
        self._goal = Goal(known_ends(self._graph, begins(self._graph, now, start)), self._now())

    def taken(self, at: Position, unprepared: Sequence[Epoch]) -> Position:
        """Under at-most-once: how far the input may have been processed beyond a position, also by `unprepared` epochs."""
        if not self._graph.promise.at_most_once:
            return Position()
        found = at.furthest(self._lost)
        for epoch in unprepared:
            found = found.furthest(epoch.plan.end)
        return found if self._claims is None else found.furthest(within_input(self._graph, self._claims.furthest()))

    @property
    def asks(self) -> bool:
        """True if some sources are read by report: whether there is input is known when an epoch has asked."""
        return bool(self._by_report or self._graph.polled)

    @property
    def catches_up(self) -> bool:
        return bool(self._route.limits)

    def contribute(self, epoch: Epoch, draft: ManifestDraft) -> None:
        """Contributes nothing; verifies that the input that was read is the one that was planned."""
        self.identities.keep(draft.positions)
        due = [report.next_tick for report in epoch.reports if report.next_tick is not None]
        self.next_tick = min(due, default=None)

    def completed(self, epoch: Epoch) -> None:
        """The route may be at its end."""
        if self._route.done(epoch.manifest.positions):
            self._route = Route()
        before, self._polled = self._polled, self._polled_by(epoch.manifest)
        self._exhausted = self._polled == before
        self._asked()
        if self._claims is not None:  # the plans of a continuous host do not know how far the input was read
            at = epoch.manifest.positions
            self._input_ends.update(at, at, begins(self._graph, self.partitions, at))

    def idle(self, epoch: Epoch) -> None:
        """Sources without offsets gave nothing: the plan stands, and asking again takes no new number."""
        self._idle = epoch.plan
        self._exhausted = True
        self._asked()

    def _polled_by(self, manifest: Manifest) -> _Polled:
        """How far sources without offsets have come, and the files of their states."""
        return {
            node.id: (manifest.positions.of(node.id), newest_files(manifest.components.get(node.id, {})))
            for node in self._graph.polled
        }

    def _asked(self) -> None:
        self._asked_once = True
        if self._goal is not None:
            self.unasked = tuple(node.id for node in self._graph.polled if not node.component.bounded)

    def abandoned(self, epoch: Epoch) -> None:
        """Under at-most-once its input is not read again: some of it may have been written."""
        if self._graph.promise.at_most_once:
            self._lost = self._lost.furthest(epoch.plan.end)
            if self._claims is not None:
                self._lost = self._lost.furthest(self._claims.settle(self._graph, self._fence))

    def plan(self, at: Position, parent: int, begin: Callable[[], None]) -> Plan | None:
        """The next plan, written; None if there is nothing to do. `begin` is called before it is written."""
        at = at.furthest(self._lost)
        self.identities.check()
        self.partitions = Partitions.of(self._graph, self._fixed)
        if (leg := self._route.leg(at)) is not None:  # catching up: the same slice as before, with the same ticks
            return self._write(parent, leg.start, leg.end, leg.ticks, (), begin)
        graph = self._graph
        start = starts(graph, self.partitions, at, self._latest)
        begun = begins(graph, self.partitions, start)
        reported = self._reported(start)
        there = self._ends(start, begun, reported)
        end = self._route.capped(start, there.moved(self._redelivery.end(start)))
        self._input_ends.update(start, end, begun)
        tick = self._now()
        due = tick if self._goal is None else min(tick, self._goal.tick)
        woken = graph.uses_timers and self.next_tick is not None and due >= self.next_tick
        asked = len(self.unasked) < len(graph.polled) or bool(reported)
        if end == start and not woken and not asked and not self._redelivery.is_due():
            return None
        asks = end == start and not woken  # there may be input of sources that are read by report, and nothing else
        ticks: tuple[int, ...] = ()
        continuous = self._claims is not None
        if self._records_ticks and (not asks or (continuous and reported)):
            ticks = (max(tick, start[CLOCK] + 1),)
        if graph.uses_timers and ticks:  # processing time is input too, so that a replay sees what was planned
            end = end.moved({CLOCK: ticks[-1]})
        self.limited = not end.reaches(there) or self._is_more(begun, there)
        for node in graph.planned:
            if node.id not in reported:
                node.component.sync()
        end = end.without({*reported, *(node.id for node in graph.polled)})  # the instances report it
        return self._write(parent, start, end, ticks, reported, begin)

    def plan_behind(self, before: Plan, begin: Callable[[], None]) -> Plan | None:
        """The plan of an epoch that begins where another one ends, which its instances report; None if there is nothing to do
        behind that one. It names what the driver knows: the inbox and the clock; where partitions start that are new; and where
        sources stand that the other one does not read by report. Of these, a source that has reached the goal is not read.
        """
        self.identities.check()
        earlier, self.partitions = self.partitions, Partitions.of(self._graph, self._fixed)
        known = before.start.moved(before.end).without(by_report(self._graph, before))
        reported = self._reported(known)
        start = known.moved(self._new_partitions(earlier))
        end = known.moved(self._redelivery.end(known))
        ticks = (max(self._now(), known[CLOCK] + 1),) if self._records_ticks else ()
        if self._graph.uses_timers and ticks:
            end = end.moved({CLOCK: ticks[-1]})
        self.limited = False
        return self._write(before.epoch, start, end, ticks, reported, begin)

    def _new_partitions(self, earlier: Partitions) -> dict[str, int]:
        found: dict[str, int] = {}
        for node in self._graph.planned:
            new = [name for name in self.partitions.names[node.id] if name not in earlier.names[node.id]]
            first = node.component.earliest(new) if new else {}
            found.update((f"{node.id}/{name}", first.get(name, 0)) for name in new)
        return found

    def wakes(self) -> bool:
        """True if a timer is due whose ticks this driver records."""
        return (
            self._records_ticks
            and self._graph.uses_timers
            and self.next_tick is not None
            and self._now() >= self.next_tick
        )

    def goal_of(self, source: str) -> Mapping[str, int]:
        """Partition -> the offset that a run which catches up does not read beyond; empty for one that goes on."""
        return {} if self._goal is None else self._goal.ends.of(source)

    def awaits_goal(self, at: Position) -> bool:
        """True if a run that catches up has not read, at this position, all that there was when it began."""
        return self._goal is not None and not self.is_caught_up(at)

    def is_caught_up(self, at: Position) -> bool:
        """True if a run that catches up has read, at this position, all that there was when it began: the input, what was put
        into the inbox, and timers that were due. Sources without offsets were polled; bounded ones give nothing more.
        """
        goal, graph = self._goal, self._graph
        if goal is None or self.catches_up or not at.reaches(goal.ends):
            return False
        if graph.polled and not self._asked_once:
            return False
        if any(node.component.bounded for node in graph.polled) and not self._exhausted:
            return False
        if graph.uses_timers and self.next_tick is not None and min(self._now(), goal.tick) >= self.next_tick:
            return False
        return not self._redelivery.end(at) and not self._redelivery.is_due()

    def _reported(self, start: Position) -> tuple[str, ...]:
        """The sources with offsets that this epoch reads by report. Catching up goes by plan: no slice may reach across the
        position of a sink. A source that has reached the goal of the run is not read.
        """
        if self.catches_up:
            return ()
        nodes = [self._graph[name] for name in self._by_report]
        goal = self._goal
        return tuple(node.id for node in nodes if goal is None or not start.reaches(goal.of(node.id)))

    def _ends(self, start: Position, begun: Begins, reported: Collection[str]) -> Position:
        found = ends(self._graph, start, begun, reported, self.most)
        return found if self._goal is None else self._goal.left(start, found)

    def _is_more(self, begun: Begins, end: Position) -> bool:
        """True if there was more input than this. Only a partition whose slice is full may have more."""
        goal, more = self._goal, []
        for node in self._graph.planned:
            mine = begun[node.id]
            share = share_of(node, len(mine), self.most)
            full = {part: at for part, at in end.of(node.id).items() if at - mine[part] >= share}
            if goal is not None:
                full = {part: at for part, at in full.items() if at < goal.ends[f"{node.id}/{part}"]}
            if full and node.component.has_more(full):
                more.append(node.id)
        if self._sizing is not None:
            self._sizing.filled(more)
        return bool(more)

    def _write(
        self,
        parent: int,
        start: Position,
        end: Position,
        ticks: tuple[int, ...],
        reported: tuple[str, ...],
        begin: Callable[[], None],
    ) -> Plan:
        """A name that is taken means that the number is spent: take the next."""
        idle, self._idle = self._idle, None
        self.identities.note(end)
        planned = Plan(0, parent, 0, start, end, ticks, reported or UNSET)
        if idle is not None and msgspec.structs.replace(idle, epoch=0, fence=0, seal="") == planned:
            begin()
            return idle
        while True:
            plan = msgspec.structs.replace(planned, epoch=self._next, fence=self._fence)
            self._next += 1
            begin()
            try:
                self._store.write_plan(plan)
            except FileExistsError:
                continue
            return plan
