"""The order in which single events would pass through a chain.

Single events go depth first: what a step emits for one event reaches everything behind, channel by channel and successor by
successor, before the next event enters; then timers fire, step by step, and what each emits passes in the same way. Batches go
step by step. A *moment* is a number that gives every event, wherever it is, its place in the order of single events:

    moment = row * width + rank

The row is that of the batch at the chain's inlet. The rank is that of the route that the event has taken: of all routes to a
step, those of events before those of timers, each in depth-first order. Where a step has several inputs, their batches are
merged by moment. An advance of event time behind a row has the last moment of that row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamwork.components.collector import MAIN
from streamwork.flow.batch import Batch
from streamwork.flow.lineage import Array
from streamwork.job import Input

OUTBOX = ""
"""Stands for everything that leaves the chain, among the steps."""
BEFORE = -1
"""The row of events that precede all others of a wave."""


class To(NamedTuple):
    """A port of a step."""

    step: str
    port: str = MAIN


class Edge(NamedTuple):
    """To one successor of a step."""

    to: To
    ranks: Array | None  # rank at the step -> rank at the successor; None if moments are not needed there


class Routes:
    """The edges of a chain, and how moments change along them."""

    def __init__(
        self,
        beginnings: Sequence[str],
        channels: Mapping[str, Sequence[str]],
        successors: Mapping[Input, Sequence[To]],
        timed: Sequence[str],
        gathering: Iterable[str],
    ) -> None:
        """`beginnings`: sources and steps, in the order of the graph. `channels` are those of each, in order. `successors` are
        the steps behind a channel, in order; `OUTBOX` comes first where it leaves the chain. `timed` are steps with timers.
        `gathering` are the steps at which moments are needed.
        """
        order = [*beginnings, OUTBOX]
        self._needs = self._needing(order, channels, successors, set(gathering))
        routes: dict[str, list[tuple[Any, ...]]] = {name: [] for name in order}
        if self._needs:
            starts = [(0, place, name) for place, name in enumerate(beginnings)]
            starts += [(1, place, name) for place, name in enumerate(timed)]
            for phase, place, name in starts:
                self._spread(name, (phase, place), channels, successors, routes)
        ranks = {name: {route: rank for rank, route in enumerate(sorted(found))} for name, found in routes.items()}
        self.width = max(map(len, routes.values()), default=0) + 1
        self.edges: dict[Input, list[Edge]] = {}
        for one, targets in successors.items():
            step = (list(channels[one.node]).index(one.channel),)
            for number, to in enumerate(targets):
                table = None
                if to.step in self._needs:
                    table = np.array([ranks[to.step][*route, *step, number] for route in ranks[one.node]], np.int64)
                self.edges.setdefault(one, []).append(Edge(to, table))
        self.event_ranks = {name: sum(route[0] == 0 for route in found) for name, found in routes.items()}
        """How many routes of events lead to each step; those of timers follow."""
        self.timer_ranks = {name: ranks[name].get((1, place), 0) for place, name in enumerate(timed)}
        self._beginning = {name: ranks[name].get((0, place), 0) for place, name in enumerate(beginnings)}

    def needs_moments(self, name: str) -> bool:
        """True if the moments of events at this step are used: there, or at a step behind it."""
        return name in self._needs

    def begin(self, name: str, batch: Batch, rows: Array | None = None) -> Batch:
        """A batch at the chain's inlet, which begins with this step or behind this source."""
        if rows is None:
            rows = np.arange(len(batch), dtype=np.int64)
        return batch.at(rows * self.width + self._beginning[name])

    def emitted(self, name: str, row: int) -> int:
        """The moment of what a step emits on its own, at this row."""
        return row * self.width + self._beginning[name]

    def along(self, edge: Edge, batch: Batch) -> Batch:
        """A batch that has come along an edge."""
        if edge.ranks is None:
            return batch if batch.moments is None else batch.at(None)
        assert batch.moments is not None, "what meets is ordered"
        rows, ranks = np.divmod(batch.moments, self.width)
        return batch.at(rows * self.width + edge.ranks[ranks])

    def behind(self, rows: Array) -> Array:
        """The moments of advances behind these rows."""
        return (rows + 1) * self.width - 1

    def _needing(
        self,
        order: Sequence[str],
        channels: Mapping[str, Sequence[str]],
        successors: Mapping[Input, Sequence[To]],
        gathering: set[str],
    ) -> set[str]:
        needs = set(gathering)
        for name in reversed(order):
            behind = (to.step for channel in channels.get(name, ()) for to in successors.get(Input(name, channel), ()))
            if any(to in needs for to in behind):
                needs.add(name)
        return needs

    def _spread(
        self,
        name: str,
        route: tuple[Any, ...],
        channels: Mapping[str, Sequence[str]],
        successors: Mapping[Input, Sequence[To]],
        routes: dict[str, list[tuple[Any, ...]]],
    ) -> None:
        """Extend a route to everything that it leads to."""
        routes[name].append(route)
        for place, channel in enumerate(channels.get(name, ())):
            for number, to in enumerate(successors.get(Input(name, channel), ())):
                if to.step in self._needs:
                    self._spread(to.step, (*route, place, number), channels, successors, routes)
