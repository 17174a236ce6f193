"""Runs a job in one process, with virtual time, a seeded schedule, and crashes at any step.

A run is a function of job, input, seed and `crash_at`. `inputs` replaces the events of sources; every sink is a
table in memory; files are on a simulated disk that loses unsynced data in a crash. After a crash the job starts again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streamwork.components import Record, Sink
from streamwork.components.source import AnySource
from streamwork.delivery import DeadLetters, Letter
from streamwork.engine import EndKnown, Schedule
from streamwork.engine.engine import Choice
from streamwork.epoch import Driver, Manifest, Phase, Store
from streamwork.epoch.state_view import state_view
from streamwork.errors import WrongUse
from streamwork.flow.gauge import CHANNEL_BOUND, Bound
from streamwork.hosts.local import LocalHost
from streamwork.job import Graph, Job
from streamwork.job.node import UNLIMITED
from streamwork.testing.clock import VirtualClock
from streamwork.testing.disk import DiskCrashed, SimulatedDisk
from streamwork.testing.memory import MemorySink, Table
from streamwork.testing.processes import SimulatedProcesses
from streamwork.testing.script import Script

ROOT = Path("/simulated")
MOST_LIVES = 50


@dataclass
class Guards:
    """The safeguards of a run. Negative controls switch one off to show that the checkers find the fault."""

    align: bool = True
    ledger: bool = True


class Observer:
    """Is shown a run as it goes on; this one does nothing. An observer changes nothing of what it is shown."""

    def on_start(self, life: int, host: LocalHost, store: Store, tables: Mapping[str, Table]) -> None:
        """A driver is about to start; `tables` are the sinks."""

    def on_step(self, step: int) -> None:
        """A step begins: the run crashes here if `crash_at` says so. What was shown before has happened."""

    def on_turn(self, chosen: Choice) -> None:
        """The schedule has chosen this turn; it has not happened yet."""

    def on_phase(self, phase: Phase, epoch: int) -> None:
        """A phase of the protocol is done. The next step follows at once."""

    def on_crash(self) -> None:
        """The machine crashes."""


@dataclass
class Result:
    """The results of a run."""

    outputs: dict[str, list[Any]]  # sink -> its rows, in the order of their commits
    states: dict[str, dict[Any, Record]]  # component -> key (or instance) -> record
    checkpoints: list[int]  # the completed ones
    processed: dict[str, int]  # component -> times it processed an event, in completed checkpoints
    delivered: dict[str, int]  # component -> times it delivered an event, in completed checkpoints
    # component -> all counters, in completed checkpoints
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)  # the dead letters
    lives: int = 1
    seconds: float = 0.0  # virtual time that the run took
    resumed_at: list[int] = field(default_factory=list)  # the checkpoint that each restart resumed from; 0: none
    steps: int = 0  # the number of choices of the schedule: `crash_at` may be any of them
    story: list[str] = field(default_factory=list)


def run(
    job: Job,
    inputs: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    crash_at: Sequence[int] | int | None = None,
    epoch_events: int | None = None,
    partitions: int = 1,
    until: Callable[[Result], bool] | None = None,
    guards: Guards | None = None,
    ends_known: EndKnown = EndKnown.BY_PLAN,
    bound: Bound = CHANNEL_BOUND,
    observer: Observer | None = None,
) -> Result:
    """Run a job until its input is processed, or until `until` returns True after a checkpoint.

    `crash_at`: step numbers, counted over the whole run, at which the machine crashes. `epoch_events`: the number of events
    that an epoch reads from each partition of an input, and from each source without an input here (by default the seed chooses
    it for inputs). `partitions`: the number of partitions of each input. `ends_known`: how the host reads them.
    `bound`: the most that may wait in a channel between two instances. `observer`: is shown each step.
    """
    simulation = _Simulation(
        job,
        inputs or {},
        seed,
        crash_at,
        epoch_events,
        partitions,
        guards or Guards(),
        ends_known,
        bound,
        observer or Observer(),
    )
    return simulation.run(until)


class _Simulation:
    def __init__(
        self,
        job: Job,
        inputs: Mapping[str, Sequence[Any]],
        seed: int,
        crash_at: Sequence[int] | int | None,
        epoch_events: int | None,
        partitions: int,
        guards: Guards,
        ends_known: EndKnown,
        bound: Bound,
        observer: Observer,
    ) -> None:
        self._observer = observer
        self._bound = bound
        self._ends_known = ends_known
        self._random = random.Random(seed)
        self._settings = job.settings
        self._guards = guards
        self._clock = VirtualClock()
        self._began = self._clock.monotonic()
        self._disk = SimulatedDisk(seed=self._random.randrange(2**31))
        crashes = [crash_at] if isinstance(crash_at, int) else list(crash_at or ())
        self._schedule = _Crashing(random.Random(self._random.randrange(2**31)), set(crashes), observer)
        components = job.components
        self._tables = {name: Table() for name, component in components.items() if isinstance(component, Sink)}
        for name in inputs:
            if not isinstance(components.get(name), AnySource):
                raise WrongUse(
                    "SW-TESTING-INPUT",
                    f"inputs= names {name!r}, which is not a source of {job.name}",
                    "use the id of a source",
                )
        size = epoch_events or self._random.randint(1, 12)
        scripts = {
            name: Script(
                components[name].event,
                items,
                partitions,
                size * partitions,
                self._die,
                self._clock.sleep,
                self._clock.set_by,
            )
            for name, items in inputs.items()
        }
        cut = {
            name: _cut(component, epoch_events)
            for name, component in components.items()
            if isinstance(component, AnySource) and epoch_events
        }
        sinks = {name: MemorySink(table, guards.ledger) for name, table in self._tables.items()}
        self._graph = _unlimited(job.graph(instead={**cut, **scripts, **sinks}))
        self._resumed_at: list[int] = []
        self._story: list[str] = []
        self._processes = SimulatedProcesses()
        self._manifests: dict[str, Manifest] = {}

    def run(self, until: Callable[[Result], bool] | None) -> Result:
        for life in range(1, MOST_LIVES + 1):
            store = Store(self._disk, ROOT, self._graph.job)
            align, ends_known = self._guards.align, self._ends_known
            host = LocalHost(self._disk, self._schedule, self._token, align, self._clock, ends_known, self._bound)
            driver = Driver(
                self._graph,
                self._settings,
                store,
                host,
                self._clock,
                self._token,
                listener=self,
                depth=2,
                processes=self._processes,
            )
            self._observer.on_start(life, host, store, self._tables)
            try:
                started = driver.start()
                if life > 1:
                    self._resumed_at.append(started.resumed_at)
                self._story.append(f"start {life}: " + ("new" if started.new else f"resumed at {started.resumed_at}"))
                while driver.run_epoch() is not None or driver.unsettled():
                    self._clock.sleep(0.1)
                    if until is not None and until(self._result(store, driver.at, life)):
                        break
                return self._result(store, driver.at, life)
            except DiskCrashed:
                self._observer.on_crash()
                self._disk.crash()
                self._processes.restart()
        raise AssertionError(f"the run did not end after {MOST_LIVES} starts: {self._story}")

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        """Called by the driver. Each phase of the protocol is also a phase at which the machine may crash."""
        self._story.append(f"{phase.value} {epoch}")
        if phase in (Phase.PREPARE, Phase.READY):  # retention has not pruned the manifest yet
            found = Store(self._disk, ROOT, self._graph.job).manifest(epoch)
            self._manifests[found.sha256] = found
        self._observer.on_phase(phase, epoch)
        self._schedule.count()

    def _die(self) -> None:
        raise DiskCrashed

    def _token(self) -> str:
        return f"{self._random.randrange(2**32):08x}"

    def _result(self, store: Store, at: Manifest, lives: int) -> Result:
        chain = [at]
        while chain[-1].parent_sha256 in self._manifests:
            chain.append(self._manifests[chain[-1].parent_sha256])
        counted: dict[str, Counter[str]] = {}
        for manifest in chain:
            for name, counters in manifest.counters.items():
                counted.setdefault(name, Counter()).update(counters)
        return Result(
            outputs={name: list(table.rows) for name, table in self._tables.items()},
            states=_states(self._graph, store, at, self._settings.groups),
            checkpoints=sorted(manifest.epoch for manifest in chain if manifest.epoch),
            processed={name: counters["processed"] for name, counters in counted.items()},
            delivered={name: counters["delivered"] for name, counters in counted.items()},
            lives=lives,
            seconds=self._clock.monotonic() - self._began,
            resumed_at=list(self._resumed_at),
            counts={name: dict(counters) for name, counters in counted.items()},
            letters=DeadLetters(store.disk, store.folder).all(),
            steps=self._schedule.steps,
            story=self._story,
        )


class _Crashing(Schedule):
    """A seeded order, with a crash of the machine at given steps."""

    def __init__(self, rng: random.Random, crashes: set[int], observer: Observer) -> None:
        self.steps = 0
        self._random = rng
        self._crashes = crashes
        self._observer = observer

    def choose(self, choices: Sequence[Choice]) -> Choice:
        self.count()
        chosen = self._random.choice(choices)
        self._observer.on_turn(chosen)
        return chosen

    def count(self) -> None:
        self.steps += 1
        self._observer.on_step(self.steps)
        if self.steps in self._crashes:
            raise DiskCrashed


def _unlimited(graph: Graph) -> Graph:
    """Event times need not be near virtual time: `max_ahead` applies where the job sets it."""
    timed = [node for node in graph.sources if node.time is not None and node.max_ahead is None]
    return replace(
        graph, nodes=tuple(replace(node, max_ahead=UNLIMITED) if node in timed else node for node in graph.nodes)
    )


def _cut(source: Any, size: int) -> Any:
    """This source with epochs of at most `size` events."""
    mine = object.__new__(type(source))
    mine.__dict__.update(source.__dict__)
    mine.max_events = min(size, source.max_events)
    return mine


def _states(graph: Graph, store: Store, at: Manifest, groups: int) -> dict[str, dict[Any, Record]]:
    found: dict[str, dict[Any, Record]] = {}
    for name in at.components:
        records = state_view(graph, store, at, name, groups).records()
        found[name] = _renumbered(records) if getattr(graph[name].component, "is_numbered", False) else records
    return found


def _renumbered(records: dict[Any, Record]) -> dict[Any, Record]:
    """The same rows, those with otherwise equal keys numbered by their content: two runs may have numbered them differently."""
    groups: dict[Any, list[Record]] = {}
    for (*key, _), record in records.items():
        groups.setdefault(tuple(key), []).append(record)
    return {(*key, n): row for key, rows in groups.items() for n, row in enumerate(sorted(rows, key=repr))}
