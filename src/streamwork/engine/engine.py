"""The engine: all instances of all chains of a job in one process, connected by channels.

It does one step at a time, and a `Schedule` chooses which. With a seeded one a run is a function of job, input and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from streamwork.engine.attempt import placed
from streamwork.engine.chain import Chain
from streamwork.engine.channel import Channel
from streamwork.engine.dispatcher import Dispatcher
from streamwork.engine.executor import Executor
from streamwork.engine.instance import Instance
from streamwork.engine.manager import CheckpointManager
from streamwork.engine.report import Report
from streamwork.engine.routing import Route, route_to
from streamwork.engine.work import Work
from streamwork.errors import JobFailed, StreamworkError
from streamwork.job import Input, Layout
from streamwork.world import Disk

Choice = tuple[Executor, Channel | None]


class Schedule(Protocol):
    def choose(self, choices: Sequence[Choice]) -> Choice: ...


class Abandoned(Exception):
    """An epoch took too long. It counts for nothing; the next one starts from the same parent."""


class InstanceLost(Abandoned):
    """An instance is gone, and with it the epoch that it was computing."""


class InOrder:
    """Upstream first, each as far as it goes: the least waiting."""

    def choose(self, choices: Sequence[Choice]) -> Choice:
        return choices[-1]


class Engine:
    def __init__(
        self,
        layout: Layout,
        works: Sequence[Work],
        disk: Disk,
        new_attempt: Callable[[], str],
        schedule: Schedule | None = None,
        align: bool = True,
    ) -> None:
        """Set up every instance from the state that `works` name, before the first event."""
        self._layout = layout
        self._schedule = schedule or InOrder()
        self._manager = CheckpointManager(layout.graph)
        self._sources: dict[tuple[int, int], Executor] = {}
        self._executors: list[Executor] = []
        channels = self._connect()
        for work in works:
            chain = layout.chains[work.chain]
            instance = Instance(Chain(layout.graph, chain.nodes, work.instance), disk, work)
            place = (work.chain, work.instance)
            inputs = [channel for (_, to), channel in channels.items() if to == place]
            outputs = {to: channel for (before, to), channel in channels.items() if before == place}
            executor = Executor(
                f"{chain.nodes[0]}[{work.instance}]",
                instance,
                new_attempt,
                Dispatcher(inputs, align),
                self._routes(work.chain, work.instance, outputs),
                list(outputs.values()),
                self._manager.report,
            )
            self._executors.append(executor)
            if chain.is_source:
                self._sources[place] = executor

    def submit(self, works: Sequence[Work]) -> None:
        """Issue the next checkpoint event: each source reads its slice and then passes it on."""
        self._manager.issue(works[0].epoch)
        for work in works:
            if (source := self._sources.get((work.chain, work.instance))) is not None:
                source.plan(work)

    def collect(self, epoch: int, expired: Callable[[], bool] = lambda: False) -> list[Report]:
        """Go on, step by step, until everyone has reported on an epoch. Raises `Abandoned` when its time has expired."""
        while self._manager.missing(epoch):
            if expired():
                raise Abandoned(epoch)
            if not self.step(epoch):
                missing = ", ".join(
                    f"{component}[{instance}]" for component, instance in sorted(self._manager.missing(epoch))
                )
                raise JobFailed(
                    "SW-EPOCH-REPORTS",
                    f"epoch {epoch}: nothing is left to do, but these have not reported: {missing}",
                    "start again: the last checkpoint is good. If it comes back, it is a fault in Streamwork: report it",
                )
        return self._manager.take(epoch)

    def step(self, epoch: int) -> bool:
        """One step of one instance; False if there is none to do."""
        choices: list[Choice] = [(executor, choice) for executor in self._executors for choice in executor.choices()]
        if not choices:
            return False
        executor, choice = self._schedule.choose(choices)
        try:
            executor.step(choice)
        except (StreamworkError, OSError) as error:
            raise placed(error, self._layout.graph, epoch) from error
        return True

    def close(self) -> None:
        for executor in self._executors:
            executor.close()

    def discard(self) -> None:
        for executor in self._executors:
            executor.discard()

    def _connect(self) -> dict[tuple[tuple[int, int], tuple[int, int]], Channel]:
        """One channel for each pair of instances whose chains exchange events: also the one that checkpoint events take."""
        chains, found = self._layout.chains, {}
        pairs = {
            (self._layout.chain_of(edge.from_id), self._layout.chain_of(edge.to_id))
            for edge in self._layout.edges
            if edge.exchange
        }
        for before, after in sorted(pairs):
            for i in range(chains[before].parallelism):
                for j in range(chains[after].parallelism):
                    found[(before, i), (after, j)] = Channel(f"{before}.{i}>{after}.{j}")
        return found

    def _routes(
        self, chain: int, instance: int, outputs: dict[tuple[int, int], Channel]
    ) -> dict[tuple[Input, str], tuple[Route, list[Channel]]]:
        layout, routes = self._layout, {}
        for node in layout.graph.nodes:
            after = layout.chain_of(node.id)
            for one in node.inputs:
                if after != chain and layout.chain_of(one.node) == chain:
                    targets = [outputs[after, j] for j in range(node.parallelism)]
                    routes[one, node.id] = (route_to(layout.graph, node, layout.groups, instance), targets)
        return routes
