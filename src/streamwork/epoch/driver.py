"""The driver: walks one epoch after another through its steps. An epoch is the unit of everything: one slice of
input, one
version of the state, one transaction per sink, one manifest.

    1  plan      the positions from a to b are written before anything is computed
    2  compute   each instance writes its changed records and its outputs (`engine.attempt`)
    3  report    each instance names its files, their hashes and what it counted
    4  prepare   all have reported: the manifest is written as prepared
    5  commit    each sink, in its own transaction, by the commit rule (`epoch.commit`)
    6  complete  the same bytes are written as completed

What a crash leaves, and what the next start does with it (R = recovery, in `start`):

    after 1            a plan without manifest: its number is spent; the parent's positions are read again
    during 2, 3        files that no manifest names; likewise
    after 4            a prepared manifest: R commits its staged outputs to every sink and completes it. Nothing is
                       computed again, so operators may be random
    during 5           some sinks have the epoch, some do not: R offers it to all, and the ledger tells those that
    have it
    after 5, before 6  likewise; every ledger says "it is there"
    after 6            nothing to do

Without the ledger a sink that committed just before the crash would get the same rows again in R.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from streamwork.components import LedgerEntry, LedgerRow, Observer, Position, Sink
from streamwork.engine import Abandoned, Report, Work
from streamwork.engine.staging import read_staged
from streamwork.epoch.manifest import Manifest, Plan, SinkPart
from streamwork.epoch.recovery import check_fit, check_ledgers, check_sources, newest
from streamwork.epoch.slices import CLOCK, ends, ranges, skips, starts, timed_partitions
from streamwork.epoch.store import Store
from streamwork.errors import JobFailed, Refused, StreamworkError
from streamwork.job import Graph, Layout, Settings
from streamwork.state import FileRef
from streamwork.world import Clock

KEEP_SECONDS = 10.0
"""How often sources are told from where on they are needed. Late news only means that they keep more."""


class Step(Enum):
    """The steps of an epoch, as listeners see them: each is told when it is done."""

    PLANNED = "planned"
    COMPUTED = "computed"
    PREPARED = "prepared"
    COMMITTED = "committed"
    COMPLETED = "completed"
    ABANDONED = "abandoned"


class Listener(Protocol):
    """Told of each step. Progress lines are one; tests that stretch or break a step are another."""

    def on_step(self, step: Step, epoch: int, manifest: Manifest | None) -> None: ...


class Compute(Protocol):
    """A host: computes epochs (steps 2 and 3) on whatever it runs on, in the order in which they were submitted."""

    def submit(self, layout: Layout, works: Sequence[Work]) -> None:
        """Begin an epoch."""

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        """The reports of all instances. Raises StreamworkError where an attempt failed, `Abandoned` if it gave up."""


class Started(msgspec.Struct, frozen=True):
    """What a start found."""

    fence: int
    new: bool
    resumed_at: int
    rolled_forward: int | None


class Driver:
    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        store: Store,
        host: Compute,
        clock: Clock,
        new_uid: Callable[[], str],
        listener: Listener | None = None,
        depth: int = 1,
    ) -> None:
        """`depth` is how many epochs may be under way at a time."""
        self.graph = graph
        self.at: Manifest
        self._settings = settings
        self._layout = Layout.of(graph, settings.groups)
        self._store = store
        self._host = host
        self._clock = clock
        self._new_uid = new_uid
        self._listener = listener
        self._limited = False
        self._depth = 1 if graph.polled else depth  # what is polled may come to nothing, so nothing is built on it yet
        self._skipped: Position = {}
        self._under_way: deque[Plan] = deque()
        self._kept = 0.0
        self._next_tick: int | None = 0  # after a start nobody knows: have a look
        self._sinks: dict[str, Sink[Any]] = {n.id: n.component for n in graph.sinks if isinstance(n.component, Sink)}
        self._observers = {n.id: n.component for n in graph.sinks if isinstance(n.component, Observer)}

    # ---- recovery: before the first source is read --------------------------------------------------------------

    def start(self) -> Started:
        """Take the job over: look whether all fits, fence, register, roll a prepared manifest forward.

        Nothing is written before everything was looked at, but for the folders and tables of a new job.
        """
        identity = self._store.identity()
        new = identity is None
        if identity is not None:
            check_fit(self._store, self.graph, newest(self._store, identity), identity.groups)
            check_sources(self.graph, self._store.sources())
        for node in self.graph.sinks:
            if isinstance(node.component, Sink):
                assert node.takes is not None
                node.component.open(node.takes)
        if identity is None:
            identity = self._store.create(self.graph, self._new_uid(), self._settings.groups, self._clock)
        self._uid, self._groups = identity.uid, identity.groups
        seen = [row.fence for row in self._ledgers().values() if row is not None]
        self._fence = self._store.new_fence(self._clock, floor=max(seen, default=0)).fence
        for sink_id, sink in self._sinks.items():
            sink.register(self._uid, sink_id, self._fence)
        self.at = newest(self._store, identity)
        rolled = self.at.epoch if self.at.epoch not in self._store.completed() else None
        parent = None if rolled is None else self._store.read_completed(self.at.parent)
        check_ledgers(self._sinks, self._ledgers(), self.at, parent)
        if parent is not None:
            self._commit(self.at, parent)
            self._complete(self.at)
        self._skipped = skips(self.graph)
        self._store.clean_up(self._fence)
        self._next = self._store.newest_number() + 1
        self._keep()
        return Started(self._fence, new, self.at.epoch, rolled)

    def _ledgers(self) -> dict[str, LedgerRow | None]:
        return {sink_id: sink.ledger(self._uid, sink_id) for sink_id, sink in self._sinks.items()}

    # ---- one epoch ----------------------------------------------------------------------------------------------

    def run_epoch(self) -> Manifest | None:
        """Steps 1 to 6. None if there is no new input."""
        while len(self._under_way) < self._depth and (plan := self._plan()) is not None:
            self._tell(Step.PLANNED, plan.epoch)
            self._submit(plan)
        if not self._under_way:
            return None
        plan = self._under_way.popleft()
        try:
            reports = self._collect(plan)
        except Abandoned:
            self._under_way.clear()  # whatever was built on it is abandoned with it; the next starts from the same parent
            self._tell(Step.ABANDONED, plan.epoch)
            return self.run_epoch()
        self._tell(Step.COMPUTED, plan.epoch)
        if self.graph.polled and plan.end.items() <= plan.start.items() and not _events(self.graph, reports):
            return None  # sources that are polled had nothing to say: the number is spent, nothing else has happened
        manifest = self._prepare(plan, reports)
        self._tell(Step.PREPARED, plan.epoch)
        self._commit(manifest, self.at)
        self._complete(manifest)
        self.at = manifest
        self._tell(Step.COMPLETED, plan.epoch, manifest)
        self._observe(manifest)
        if self._clock.monotonic() >= self._kept + KEEP_SECONDS:
            self._keep()
        return manifest

    def _plan(self) -> Plan | None:
        """1. Fix the slice. A name that is taken means that the number is spent: take the next."""
        tip = self._under_way[-1] if self._under_way else None
        at, parent = (tip.end, tip.epoch) if tip else (self.at.positions, self.at.epoch)
        start = starts(self.graph, at, self._skipped)
        end = ends(self.graph, start)
        tick = round(self._clock.now() * 1_000_000)
        woken = self.graph.timed and self._next_tick is not None and tick >= self._next_tick
        if end == start and not woken and not self.graph.polled:
            return None
        ticks = (max(tick, start.get(CLOCK, 0) + 1),) if self.graph.timed else ()
        end.update((CLOCK, tick) for tick in ticks)  # processing time is input too, so a replay sees what was planned
        self._limited = ends(self.graph, end, max_events=1) != end
        for node in self.graph.planned:
            node.component.settle()
        polled = tuple(f"{node.id}/" for node in self.graph.polled)
        end = {
            name: offset for name, offset in end.items() if not name.startswith(polled)
        }  # how far they come is told later
        while True:
            plan = Plan(self._next, parent, self._fence, start, end, ticks)
            self._next += 1
            try:
                self._store.write_plan(plan)
            except FileExistsError:
                continue
            return plan

    def _submit(self, plan: Plan) -> None:
        """2. By the host. An epoch may be submitted before the one before it is completed; it is completed after it."""
        works = [
            Work(
                chain=number,
                instance=instance,
                uid=self._uid,
                folder=str(self._store.folder),
                groups=self._groups,
                epoch=plan.epoch,
                fence=self._fence,
                ranges=ranges(self.graph, chain.nodes, instance, plan.start, plan.end),
                watermarks=timed_partitions(self.graph, chain.nodes, instance, self.at.watermarks),
                ticks=plan.ticks,
                states={
                    name: stored[str(instance)] for name, stored in self.at.components.items() if name in chain.nodes
                },
            )
            for number, chain in enumerate(self._layout.chains)
            for instance in range(chain.parallelism)
        ]
        self._host.submit(self._layout, works)
        self._under_way.append(plan)

    def _collect(self, plan: Plan) -> Sequence[Report]:
        """3. Has everyone reported?"""
        limit, began = self._settings.checkpoint_timeout, self._clock.monotonic()
        reports = self._host.collect(plan.epoch, lambda: limit is not None and self._clock.monotonic() - began > limit)
        told = Counter((report.component, report.instance) for report in reports)
        if told != Counter((node.id, number) for node in self.graph.nodes for number in range(node.parallelism)):
            raise JobFailed(
                "SW-EPOCH-REPORTS",
                f"epoch {plan.epoch}: not every instance reported exactly once ({dict(told)})",
                "start again: the last checkpoint is good. If it comes back, it is a fault in Streamwork: report it",
            )
        return reports

    def _prepare(self, plan: Plan, reports: Sequence[Report]) -> Manifest:
        """4. From here on the epoch is never abandoned, only rolled forward."""
        manifest = Manifest(
            epoch=plan.epoch,
            parent=plan.parent,
            parent_sha256=self.at.sha256,
            fence=self._fence,
            uid=self._uid,
            positions={**plan.end, **_polled_positions(self.graph, self.at.positions, reports)},
            components={node.id: _chains(node.id, reports) for node in self.graph.stateful},
            sinks={node.id: SinkPart(_staged(node.id, reports)) for node in self.graph.sinks},
            counters={node.id: _counters(node.id, reports) for node in self.graph.nodes},
            fingerprint=self.graph.fingerprint,
            watermarks={
                **self.at.watermarks,
                **{f"{r.component}/{part}": at for r in reports for part, at in r.watermarks.items()},
            },
        )
        waiting = [report.next_tick for report in reports if report.next_tick is not None]
        self._next_tick = min(waiting, default=None)
        self._store.write_prepared(manifest)
        return manifest

    def _commit(self, manifest: Manifest, parent: Manifest) -> None:
        """5. Offer the staged outputs to every sink; the ledger decides."""
        for sink_id, sink in self._sinks.items():
            if sink_id not in manifest.sinks:
                continue  # a sink that was added after this manifest was prepared
            entry = LedgerEntry(
                uid=self._uid,
                sink=sink_id,
                fence=self._fence,
                epoch=manifest.epoch,
                start=parent.positions,
                end=manifest.positions,
                parent_sha256=manifest.parent_sha256,
                manifest_sha256=manifest.sha256,
                deterministic=self.graph.deterministic,
                first=sink_id not in parent.sinks,
            )
            sink.commit(entry, self._read_staged(manifest, sink_id))
            self._tell(Step.COMMITTED, manifest.epoch)

    def _complete(self, manifest: Manifest) -> None:
        """6. The same bytes under the final name."""
        try:
            self._store.write_completed(manifest)
        except FileExistsError:
            raise Refused(
                "SW-DRIVER-FENCED",
                f"another driver has completed checkpoint {manifest.epoch} of this job",
                "let only one driver run this job",
            ) from None

    def _observe(self, manifest: Manifest) -> None:
        for sink_id, observer in self._observers.items():
            for batch in self._read_staged(manifest, sink_id):
                observer.observe(sink_id, batch)

    def _read_staged(self, manifest: Manifest, sink_id: str) -> Iterator[pa.RecordBatch]:
        for ref in manifest.sinks[sink_id].staged.values():
            yield from read_staged(self._store.disk, self._store.folder, ref)

    def _tell(self, step: Step, epoch: int, manifest: Manifest | None = None) -> None:
        if self._listener is not None:
            self._listener.on_step(step, epoch, manifest)

    # ---- for people -----------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """True if no input will ever come again."""
        return all(node.component.bounded for node in self.graph.sources)

    def behind(self) -> bool:
        """True if the last epoch could not take all the input that was there when it was planned."""
        return self._limited

    def _keep(self) -> None:
        """Tell the sources from where on this job needs them."""
        self._kept = self._clock.monotonic()
        stored = self._store.sources()
        known = dict(stored)
        for node in self.graph.planned:
            at = {
                name.partition("/")[2]: offset
                for name, offset in self.at.positions.items()
                if name.startswith(f"{node.id}/")
            }
            node.component.keep(self._uid, node.id, at)
            if at and node.id not in known and (now := node.component.identity()) is not None:
                known[node.id] = now
        if known != stored:
            self._store.write_sources(known)

    def close(self) -> None:
        """Let go of everything; the job can be started again by anyone."""
        if self._kept:
            with contextlib.suppress(StreamworkError, OSError):  # late news only means that sources keep more
                self._keep()
        for sink in self._sinks.values():
            sink.close()


def _chains(component: str, reports: Sequence[Report]) -> dict[str, tuple[FileRef, ...]]:
    return {str(report.instance): report.state for report in reports if report.component == component}


def _events(graph: Graph, reports: Sequence[Report]) -> int:
    sources = {node.id for node in graph.sources}
    return sum(report.counters["processed"] for report in reports if report.component in sources)


def _polled_positions(graph: Graph, at: Position, reports: Sequence[Report]) -> Position:
    """Of sources that people wrote, the position is the count of events read, by instance."""
    polled = {node.id for node in graph.polled}
    names = {f"{r.component}/{r.instance}": r.counters["processed"] for r in reports if r.component in polled}
    return {name: at.get(name, 0) + count for name, count in names.items()}


def _counters(component: str, reports: Sequence[Report]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for report in reports:
        if report.component == component:
            total.update(report.counters)
    return dict(total)


def _staged(sink: str, reports: Sequence[Report]) -> dict[str, FileRef]:
    return {str(r.instance): r.staged for r in reports if r.component == sink and r.staged is not None}
