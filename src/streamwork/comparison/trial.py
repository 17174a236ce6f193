"""`Trial`: one version of a job over one slice, in a scratch folder, on the local host.

    1  restore  the savepoint, as a fork with a uid of its own (`epoch.savepoints.restoring`)
    2  read     the slice: up to a number of events; or, of another trial, the same plans with the same ticks of the clock
    3  keep     what the sinks would hold, and the newest checkpoint, from which the state is read

Sources are read, and the trial is no consumer of a log; what polled sources give was recorded (`recording`). Sinks are
`Capture`s. Every job runs exactly-once, also one with other semantics: rows are compared, and nothing is lost or repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from streamwork.comparison.capture import Capture
from streamwork.comparison.recording import Recorded, Recording
from streamwork.components import OffsetSource, Position
from streamwork.components.position import CLOCK
from streamwork.epoch import Driver, Manifest, Store
from streamwork.epoch.recovery.catch_up import Leg, Route
from streamwork.epoch.savepoints.origin import Origin
from streamwork.epoch.savepoints.restoring import Choices, Restoring
from streamwork.epoch.store import Identity
from streamwork.hosts.local import LocalHost
from streamwork.job import Graph, Job, Node, Settings
from streamwork.job.node import NodeKind
from streamwork.job.semantics import EXACTLY_ONCE, Isolation
from streamwork.statefiles.point import At, Places, StatePoint
from streamwork.world import Clock, RealDisk, RealProcesses
from streamwork.world.heartbeat import Heartbeat

EPOCHS = 10
"""A slice is cut into at least so many epochs, where it is long enough."""
MOST, LEAST = 200_000, 1_000
"""Events of an epoch."""
Tell = Callable[[int], None]
"""Called with the number of events so far."""


class Version(msgspec.Struct, frozen=True):
    """A version of a job that is compared."""

    label: str  # A, B
    file: str
    job: Job
    params: Mapping[str, Any]
    drop_state: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """What a version made of the slice."""

    version: Version
    graph: Graph
    root: Path
    captures: Mapping[str, Capture]
    legs: tuple[Leg, ...]
    at: Manifest  # its newest checkpoint
    events: int
    ended: bool  # the input ended first
    counters: Mapping[str, Mapping[str, int]]  # component -> what it counted
    seconds: float

    @property
    def state(self) -> StatePoint:
        """Its state at the end."""
        return Places(RealDisk(), self.root, self.graph.job, self.graph).open(At())


@dataclass(frozen=True)
class Prepared:
    """A version in its scratch folder, which has the state of the savepoint."""

    version: Version
    graph: Graph
    settings: Settings
    store: Store
    captures: Mapping[str, Capture]

    @classmethod
    def of(cls, version: Version, origin: Origin, recording: Recording, folder: Path, clock: Clock) -> Prepared:
        """1. Refuses a version that does not fit the savepoint."""
        captures: dict[str, Capture] = {}
        graph, origin = recording.replaced(version.job.graph(), origin)
        graph = _scratch(graph, folder, captures)
        settings = msgspec.structs.replace(
            version.job.settings,
            semantics="exactly-once",
            tracking=None,
            checkpoint_every=0.0,
            target_epoch=None,
            retain=1,
        )
        store = Store(RealDisk(), folder, graph.job)
        origin = replace(origin, promise=EXACTLY_ONCE)
        groups, beginning = origin.identity.groups, origin.manifest.sha256
        identity = Identity(graph.job, secrets.token_hex(16), groups, clock.now(), origin=beginning)
        choices = Choices(drop_state=version.drop_state, change_semantics=True)
        Restoring(graph, settings, store, clock, RealProcesses(), origin, choices, identity).run()
        return cls(version, graph, settings, store, captures)

    def run(self, events: int, plans: tuple[Leg, ...] | None, clock: Clock, tell: Tell) -> Trial:
        """2, 3. With the `plans` of another trial, their slices; else up to so many events."""
        host = LocalHost(self.store.disk, clock=clock)
        host.open(self.graph)
        driver = Driver(
            self.graph,
            self.settings,
            self.store,
            host,
            clock,
            lambda: secrets.token_hex(16),
            processes=RealProcesses(),
        )
        began, reading = clock.monotonic(), Reading(driver, self.graph, self.store, tell)
        with Heartbeat(driver.beat, self.settings.lease / 4):
            try:
                driver.start()
                if plans is None:
                    reading.read(events)
                else:
                    reading.replay(plans)
            finally:
                driver.close()
                host.close()
        return Trial(
            self.version,
            self.graph,
            self.store.folder.parent,
            self.captures,
            tuple(reading.legs),
            driver.at,
            reading.events,
            reading.ended,
            reading.counters,
            clock.monotonic() - began,
        )


class Reading:
    """The epochs of one trial."""

    def __init__(self, driver: Driver, graph: Graph, store: Store, tell: Tell) -> None:
        self._driver = driver
        self._graph = graph
        self._store = store
        self._tell = tell
        self.legs: list[Leg] = []
        self.events = 0
        self.ended = False
        self.counters: dict[str, dict[str, int]] = {}

    def read(self, events: int) -> None:
        """Up to so many events, in slices that get smaller towards the end."""
        self._driver.end_where_input_ends()
        most = max(LEAST, min(MOST, events // EPOCHS))
        while self.events < events:
            share = max(1, min(most, events - self.events) // len(self._graph.planned))
            for node in self._graph.planned:
                node.component.max_events = share
            before = self._driver.at.positions
            manifest = self._driver.run_epoch()
            if manifest is None:
                self.ended = True
                return
            plan = self._store.plan(manifest.epoch)
            self.legs.append(Leg(before, plan.start, plan.end, plan.ticks))
            self._add(manifest)

    def replay(self, plans: tuple[Leg, ...]) -> None:
        """The same slices with the same ticks, also where only one of the versions has timers."""
        if not plans:
            return
        legs, at = [], self._driver.at.positions
        for leg in plans:
            ticks = {CLOCK: leg.ticks[-1]} if leg.ticks and self._graph.uses_timers else {}
            mine = Leg(at, at.furthest(leg.start), at.furthest(leg.end).moved(ticks), leg.ticks)
            legs.append(mine)
            at = mine.end
        self._driver.follow(Route(tuple(legs), (at,)))
        for _ in legs:
            manifest = self._driver.run_epoch()
            assert manifest is not None, "the slices are planned, and the input is there"
            self._add(manifest)
        self.legs = legs

    def _add(self, manifest: Manifest) -> None:
        self.events += manifest.events
        for component, counts in manifest.counters.items():
            mine = self.counters.setdefault(component, {})
            for kind, count in counts.items():
                mine[kind] = mine.get(kind, 0) + count
        self._tell(self.events)


def _scratch(graph: Graph, folder: Path, captures: dict[str, Capture]) -> Graph:
    """The graph with sources that are only read, and sinks that keep their rows."""
    folder.mkdir(parents=True, exist_ok=True)

    def node_of(node: Node) -> Node:
        if isinstance(node.component, OffsetSource) and not isinstance(node.component, Recorded):
            return replace(node, component=_only_read(node.component))
        if node.kind is NodeKind.SINK:
            assert node.takes is not None
            captures[node.id] = Capture(node.component, node.takes, folder / f"{node.id}.arrow")
            return replace(node, component=captures[node.id], isolation=Isolation.READ_COMMITTED)
        return node

    return replace(graph, nodes=tuple(node_of(node) for node in graph.nodes), promise=EXACTLY_ONCE)


def _only_read(source: OffsetSource[Any]) -> OffsetSource[Any]:
    """A copy that goes on from stored positions, and does not report what was read."""
    mine = object.__new__(type(source))
    mine.__dict__.update(source.__dict__)
    mine.__dict__.update(start="stored", keep=lambda progress: None)
    return mine


def positions(trial: Trial) -> tuple[Position, Position]:
    """Where the slice begins and ends, without the clock."""
    first = trial.legs[0].start if trial.legs else trial.at.positions
    last = trial.legs[-1].end if trial.legs else trial.at.positions
    return first.without([CLOCK]), last.without([CLOCK])
