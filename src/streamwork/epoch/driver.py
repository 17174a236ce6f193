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

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from streamwork.components import LedgerEntry, Observer, OffsetSource, Position, Sink
from streamwork.engine import Report, Work
from streamwork.engine.attempt import row_format
from streamwork.engine.staging import read_staged
from streamwork.epoch.manifest import Manifest, Plan, SinkPart
from streamwork.epoch.store import Store
from streamwork.errors import JobFailed, Refused
from streamwork.job import Graph, Settings
from streamwork.state import FileRef, StateFiles
from streamwork.state.files import misfitting_schema
from streamwork.world import Clock


class Step(Enum):
    """The steps of an epoch, as listeners see them: each is told when it is done."""

    PLANNED = "planned"
    COMPUTED = "computed"
    PREPARED = "prepared"
    COMMITTED = "committed"
    COMPLETED = "completed"


class Listener(Protocol):
    """Told of each step. Progress lines are one; tests that stretch or break a step are another."""

    def on_step(self, step: Step, epoch: int, manifest: Manifest | None) -> None: ...


class Compute(Protocol):
    """A host: computes an epoch (steps 2 and 3) on whatever it runs on. Raises StreamworkError where an attempt
    failed.
    """

    def compute(self, graph: Graph, work: Work) -> Sequence[Report]: ...


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
    ) -> None:
        self.graph = graph
        self.at: Manifest
        self._settings = settings
        self._store = store
        self._host = host
        self._clock = clock
        self._new_uid = new_uid
        self._listener = listener
        self._limited = False
        self._sinks: dict[str, Sink[Any]] = {n.id: n.component for n in graph.sinks if isinstance(n.component, Sink)}
        self._observers = {n.id: n.component for n in graph.sinks if isinstance(n.component, Observer)}

    # ---- recovery: before the first source is read --------------------------------------------------------------

    def start(self) -> Started:
        """Take the job over: fence, register, find the newest manifest, roll a prepared one forward."""
        identity = self._store.identity()
        new = identity is None
        if not new:
            self._check_states(self._newest())  # refuse a job that no longer fits its state before the first write
        for node in self.graph.sinks:
            if isinstance(node.component, Sink):
                assert node.takes is not None
                node.component.open(node.takes)
        if identity is None:
            identity = self._store.create(self.graph, self._new_uid(), self._settings.groups, self._clock)
        self._uid, self._groups = identity.uid, identity.groups
        self._fence = self._store.new_fence(self._clock).fence
        for sink_id, sink in self._sinks.items():
            sink.register(self._uid, sink_id, self._fence)
        newest = self._newest()
        rolled = newest.epoch if newest.epoch not in self._store.completed() else None
        if rolled is not None:
            self._commit(newest, self._store.plan(rolled), self._store.read_completed(newest.parent))
            self._complete(newest)
        self.at = newest
        self._next = self._store.newest_number() + 1
        return Started(self._fence, new, newest.epoch, rolled)

    def _newest(self) -> Manifest:
        """The newest manifest, completed or prepared. Never starts empty where state existed."""
        completed, prepared = max(self._store.completed(), default=-1), max(self._store.prepared(), default=-1)
        if max(completed, prepared) < 0:
            raise Refused(
                "SW-CHECKPOINT-NONE",
                f"{self._store.folder} belongs to a job, but holds no checkpoint at all",
                "bring the folder checkpoints/ back from a copy; to begin anew, take another --root and an empty target",
            )
        return self._store.read_prepared(prepared) if prepared > completed else self._store.read_completed(completed)

    def _check_states(self, manifest: Manifest) -> None:
        """Refuse a job whose components no longer fit the state that is stored for them."""
        formats = {node.id: row_format(self.graph, node, self._settings.groups) for node in self.graph.stateful}
        for component, instances in manifest.components.items():
            if component not in formats:
                raise Refused(
                    "SW-STATE-ORPHAN",
                    f"checkpoint {manifest.epoch} holds state of {component!r}, which the job does not have any more",
                    f"give the component that goes on with it the id {component!r}, or run the new job in another --root",
                )
            newest = [chain[-1] for chain in instances.values() if chain]
            for ref in newest:
                found = StateFiles(self._store.disk, self._store.folder).read(ref).schema
                if not found.equals(formats[component].schema):
                    raise misfitting_schema(formats[component], ref, found)

    # ---- one epoch ----------------------------------------------------------------------------------------------

    def run_epoch(self) -> Manifest | None:
        """Steps 1 to 6. None if there is no new input."""
        plan = self._plan()
        if plan is None:
            return None
        self._tell(Step.PLANNED, plan.epoch)
        reports = self._compute(plan)
        self._tell(Step.COMPUTED, plan.epoch)
        manifest = self._prepare(plan, reports)
        self._tell(Step.PREPARED, plan.epoch)
        self._commit(manifest, plan, self.at)
        self._complete(manifest)
        self.at = manifest
        self._tell(Step.COMPLETED, plan.epoch, manifest)
        self._observe(manifest)
        return manifest

    def _plan(self) -> Plan | None:
        """1. Fix the slice. A name that is taken means that the number is spent: take the next."""
        start = self.at.positions
        end = self._ends(start)
        if end == start:
            return None
        self._limited = self._ends(end, max_events=1) != end
        while True:
            plan = Plan(self._next, self.at.epoch, self._fence, start, end)
            self._next += 1
            try:
                self._store.write_plan(plan)
            except FileExistsError:
                continue
            return plan

    def _ends(self, start: Position, max_events: int | None = None) -> Position:
        """How far the next epoch may go from `start`."""
        end = dict(start)
        for node in self.graph.sources:
            source: OffsetSource[Any] = node.component
            for partition in source.partitions():
                name = f"{node.id}/{partition}"
                reached = source.end(partition, start.get(name, 0), max_events or source.max_events)
                if reached > start.get(name, 0):
                    end[name] = reached
        return end

    def _compute(self, plan: Plan) -> Sequence[Report]:
        """2 and 3. By the host; here only the question whether everyone has reported."""
        ranges: dict[str, dict[str, tuple[int, int]]] = {}
        for name, end in plan.end.items():
            start = plan.start.get(name, 0)
            if end > start:
                source, partition = name.split("/")
                ranges.setdefault(source, {})[partition] = (start, end)
        work = Work(
            uid=self._uid,
            folder=str(self._store.folder),
            groups=self._groups,
            epoch=plan.epoch,
            fence=self._fence,
            ranges=ranges,
            states={name: instances.get("0", ()) for name, instances in self.at.components.items()},
        )
        reports = self._host.compute(self.graph, work)
        told = Counter((report.component, report.instance) for report in reports)
        if told != Counter((node.id, 0) for node in self.graph.nodes):
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
            positions=plan.end,
            components={node.id: _chains(node.id, reports) for node in self.graph.stateful},
            sinks={node.id: SinkPart(_staged(node.id, reports)) for node in self.graph.sinks},
            counters={report.component: report.counters for report in reports},
            fingerprint=self.graph.fingerprint,
        )
        self._store.write_prepared(manifest)
        return manifest

    def _commit(self, manifest: Manifest, plan: Plan, parent: Manifest) -> None:
        """5. Offer the staged outputs to every sink; the ledger decides."""
        for sink_id, sink in self._sinks.items():
            if sink_id not in manifest.sinks:
                continue  # a sink that was added after this manifest was prepared
            entry = LedgerEntry(
                uid=self._uid,
                sink=sink_id,
                fence=self._fence,
                epoch=manifest.epoch,
                start=plan.start,
                end=plan.end,
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

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()


def _chains(component: str, reports: Sequence[Report]) -> dict[str, tuple[FileRef, ...]]:
    return {str(report.instance): report.state for report in reports if report.component == component}


def _staged(sink: str, reports: Sequence[Report]) -> dict[str, FileRef]:
    return {str(r.instance): r.staged for r in reports if r.component == sink and r.staged is not None}
