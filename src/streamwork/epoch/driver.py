"""The driver: walks one epoch after another through its phases. An epoch is the unit of everything: one slice of input, one
version of the state, one transaction per sink, one manifest (`epoch.epoch` has its states).

    1  plan      the positions from a to b are written before anything is computed
    2  compute   each instance writes its changed records and its outputs (`engine.attempt`)
    3  report    each instance names its files, their hashes and what it counted; the attempts must agree (`epoch.agreement`)
    4  prepare   the manifest is written as prepared
    5  commit    each sink, in its own transaction, by the commit rule (`components.commit_rule`)
    6  complete  the same bytes are written as completed
    .  prune     what no kept checkpoint needs is removed (`epoch.pruning`)

What a crash leaves, and what the next start (R, `epoch.recovery.recovery`) does with it:

    after 1            a plan without manifest: its number is spent; the parent's positions are read again
    during 2, 3        files that no manifest names; likewise
    after 4            a prepared manifest: R commits its staged outputs to every sink and completes it. Nothing is computed
                       again, so operators may be random
    during 5           some sinks have the epoch, some do not: R offers it to all, and the ledgers show which have it
    after 5, before 6  likewise; every ledger says "it is there"
    after 6            nothing to do
    during prune       files are left that no manifest names: R removes them

Without the ledger a sink that committed just before the crash would get the same rows again in R.

Under other semantics than exactly-once the instances write to the sinks in 2, and 5 commits nothing (`job.semantics`):

    at-least-once    a crash before 4 makes the next start compute, and write, the same slice again
    at-most-once     what was planned is never read again: the next start goes on behind the newest plan, with the state of the
                     newest manifest. So the plan is durable before anything is written; a driver that finds, right after it
                     wrote a plan, that it has lost the job, computes nothing; and of several attempts at an epoch only the
                     first may write (its claim). The input of an abandoned epoch is lost, too

Participants (`epoch.participant`) are informed of each state of an epoch after its durable effect. Recovery does not depend on
what they do then, only on what they contribute to the manifest before 4.

Overlap. While there is a backlog and the host computes elsewhere, epoch N+1 is planned and submitted between 4 and 5 of N: its
slice, its states and its watermarks are those of the prepared manifest N, which is never abandoned. It is collected when N is
completed. If 5 or 6 of N fail, or the driver dies, N+1 has no manifest yet: its number is spent, as after 1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence

from streamwork.delivery.retrying import Watch
from streamwork.engine import Abandoned
from streamwork.epoch import reported
from streamwork.epoch.assigning import Assigner
from streamwork.epoch.background import Background, at_once
from streamwork.epoch.collecting import Collector
from streamwork.epoch.draft import ManifestDraft
from streamwork.epoch.effects import Effects
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.fences import Fences
from streamwork.epoch.history.recorder import NoHistory, Recorder
from streamwork.epoch.host import Host
from streamwork.epoch.in_doubt import InDoubt
from streamwork.epoch.in_flight import InFlight
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.names import Names
from streamwork.epoch.participant import Participant, inform
from streamwork.epoch.parts import Parts
from streamwork.epoch.phases import Listener, Phase
from streamwork.epoch.recovery.catch_up import Route
from streamwork.epoch.recovery.recovery import NOTHING, Recovery
from streamwork.epoch.requests import Requests
from streamwork.epoch.savepoints.record import SavepointRecord
from streamwork.epoch.slices import by_report
from streamwork.epoch.start_records import Drop
from streamwork.epoch.starting import Start, Started
from streamwork.epoch.store import Store
from streamwork.job import Graph, Layout, Settings
from streamwork.world import Clock, Processes, RealProcesses


class Driver:
    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        store: Store,
        host: Host,
        clock: Clock,
        new_uid: Callable[[], str],
        listener: Listener | None = None,
        depth: int = 1,
        processes: Processes | None = None,
        history: Recorder | None = None,
        take_over: bool = False,
        accept_divergence: bool = False,
        background: Background = at_once,
        overlap: bool | None = None,
        change_semantics: bool = False,
        refill: Collection[str] = (),
        requests: Requests | None = None,
        drop: Drop = NOTHING,
        participants: Sequence[Participant] = (),
    ) -> None:
        """`depth` is how many epochs may be in flight; `background` is where snapshots and savepoints are
        written. With `overlap` an epoch is
        computed while the sinks commit the one before it; None: where the host can. `refill` names sinks that are filled again
        from the kept checkpoints if they are lost. `participants` are informed after the driver's own (`epoch.parts`).
        """
        self.graph = graph
        self.at: Manifest
        store = store.named(Names.of(graph))
        self.fences = Fences(store.disk, store.folder, clock, processes or RealProcesses())
        self._settings = settings
        self._store = store
        self._host = host
        self._clock = clock
        self._new_uid = new_uid
        self._listener = listener
        self._requests = requests or Requests(None, clock.monotonic)
        self._effects = Effects(graph, store)
        parts = self._parts = Parts(
            graph,
            settings,
            store,
            clock,
            self.fences,
            host,
            history or NoHistory(),
            background,
            self._new_stem,
            new_uid,
            self._requests,
            participants,
        )
        self.participants = parts.participants
        self._recovery = Recovery(
            graph, store, self.fences, parts.sinks, accept_divergence, change_semantics, refill, drop
        )
        self._start = Start(
            graph, settings, store, clock, self.fences, parts.sinks, self._recovery, drop, new_uid, take_over
        )
        # Ends that are known by report, and events that come again, are known at the end of an epoch: none is built on it before.
        in_turn = parts.planner.asks or graph.promise.acknowledges
        self._overlap = (host.overlaps if overlap is None else overlap) and not in_turn
        self._overlap = self._overlap and not host.continuous
        self._depth = 2 if host.continuous else 1 if in_turn else depth
        self._retries: Watch | None = None  # the marks of tasks that retry an event; None before the start
        self._collector: Collector
        self._in_flight: InFlight

    def start(self) -> Started:
        """Take the job over, and bring everything to one checkpoint (`epoch.starting`)."""
        footing, recovered = self._start.run(self._tell)  # 1 to 8
        self.fence, self.at = footing.fence, footing.at
        self._set_up(
            Layout.of(self.graph, footing.identity.groups, isolates=self._host.continuous, bounds=self._host.bounds)
        )
        self._in_flight.build_on(self.at, recovered.plan.chains)
        self.fences.check(self.fence)
        self._effects.publish(self.at)
        story = [*recovered.story]
        self._parts.planner.catch_up(recovered.route)
        for participant in self.participants:
            story += participant.resume(footing)
        self._recovery.set_aside(recovered, self.fence)  # 9
        self._parts.pruner.begin(self.fence, recovered.line)
        self._parts.redelivery.prune(self._parts.pruner.oldest)
        self._tell(Phase.PRUNE, self.at.epoch)
        self._parts.progress.report_if_new()
        rolled_forward = recovered.base.epoch if footing.rolled_forward else None
        return Started(
            self.fence, footing.new, self.at.epoch, rolled_forward, tuple(story), self._parts.planner.skipped
        )

    def _set_up(self, layout: Layout) -> None:
        """What can be made when the fence and the number of key groups are known."""
        folder, clock = self._store.folder, self._clock
        retries = self._retries = Watch(self._store.disk, folder, self.fence, clock.monotonic)
        retries.clear()
        assigner = Assigner(layout, self._settings, folder, self.at.uid, self._parts.planner, self._host.continuous)
        flight = self._in_flight = InFlight(
            layout, self._host, clock, self.fences, self._parts.planner, assigner, self.participants, self._tell
        )
        self._collector = Collector(
            layout,
            self._settings,
            self._host,
            clock,
            retries,
            lambda: self._requests.stop_requested_now(self.fences),
            flight.repeat,
            self._tell,
        )

    def end_where_input_ends(self) -> None:
        """After a start: read the input that is there now, and plan nothing beyond it. Sources without offsets are polled once."""
        self._parts.planner.end_where_input_ends(self.at.positions)

    def follow(self, route: Route) -> None:
        """After a start: plan the slices of a route, with its ticks. For a replay of another job's plans."""
        self._parts.planner.catch_up(route)

    # ---- one epoch ------------------------------------------------------------------------------------------------

    def run_epoch(self, last: bool = False) -> Manifest | None:
        """1 to 6. None if there is no new input, or a stop is requested while epochs are abandoned. With `last` no epoch is
        planned: one that is in flight is completed.
        """
        try:
            while True:
                if not last:
                    if self._rests():
                        self._parts.progress.report_if_new()
                        return None
                    self._in_flight.plan(self._depth)
                if not self._in_flight:
                    self._parts.progress.report_if_new()
                    return None
                try:
                    return self._run(self._in_flight.oldest, last)
                except Abandoned:
                    self._in_flight.abandon()
                self.attend()
                if self.stop_requested:
                    return None
        except Exception:
            self.fences.check(self.fence)  # if the driver has lost its job, that is the cause
            raise

    def _rests(self) -> bool:
        """True if nothing has happened in the epoch that a continuous host has open: then it stays open."""
        if not self._host.continuous or not self._in_flight or self._parts.planner.awaits_goal(self.at.positions):
            return False
        parts = self._parts
        return not (
            self._host.moved() or parts.planner.wakes() or parts.redelivery.is_due() or parts.redelivery.has_news()
        )

    def _run(self, epoch: Epoch, last: bool) -> Manifest | None:
        """3 to 6; None if nothing has happened in the epoch. Raises `Abandoned` instead of 4."""
        try:
            self._collector.collect(epoch)  # 3
        except Abandoned:
            raise
        except Exception:
            inform(self.participants, epoch)
            raise
        self._tell(Phase.REPORT, epoch.number)
        if self._nothing_happened(epoch):
            self._in_flight.remove(epoch)
            epoch.idle()
            inform(self.participants, epoch)
            return None
        self._prepare(epoch)
        if self._overlap and self._parts.planner.limited and not last:
            self.fences.check(self.fence)  # a driver that has lost the job plans nothing more
            self._in_flight.plan(1)
        self._commit(epoch)
        self._complete(epoch)
        self._prune(epoch)
        return epoch.manifest

    def _nothing_happened(self, epoch: Epoch) -> bool:
        """True if sources that are read by report gave nothing and have not changed their state, and nothing else was due."""
        plan, reports = epoch.plan, epoch.reports
        if len(self._in_flight) > 1:  # the next one is open already, and builds on it
            return False
        if not by_report(self.graph, plan) or reported.events(self.graph, reports):
            return False
        if reported.moved(self.graph, self._in_flight.chains, reports) or any(r.troubles or r.acked for r in reports):
            return False
        return epoch.start.reaches(reported.end_of(epoch.start, plan, reports)) and not self._parts.redelivery.is_due()

    def _prepare(self, epoch: Epoch) -> None:
        """4. From here on the epoch is never abandoned, only rolled forward."""
        draft = ManifestDraft.of(self.graph, epoch, self.at, self._in_flight.chains)
        for participant in self.participants:
            participant.contribute(epoch, draft)
        manifest = draft.manifest(epoch, self.at.uid, self.graph.fingerprint)
        try:
            self._store.write_prepared(manifest)
        except FileExistsError as error:  # another driver has used that number: it is spent
            self._host.abandon()
            raise Abandoned(epoch.number) from error
        epoch.prepare(manifest)
        self._in_flight.remove(epoch)
        self._in_flight.build_on(manifest, manifest.components)
        epoch.timings.lap(Phase.PREPARE)
        self._tell(Phase.PREPARE, epoch.number)
        inform(self.participants, epoch)

    def _commit(self, epoch: Epoch) -> None:
        """5. Offer the staged outputs to every sink: the ledger decides."""
        deterministic = self.graph.deterministic or self._parts.planner.catches_up
        for name in self._parts.sinks.ids:
            with epoch.timings.of_sink(name):
                self._parts.sinks.offer(name, epoch.manifest, self.at, deterministic)
            self._tell(Phase.COMMIT, epoch.number)
        epoch.commit(self._parts.sinks.refused(epoch.number))
        epoch.timings.lap(Phase.COMMIT)
        inform(self.participants, epoch)

    def _complete(self, epoch: Epoch) -> None:
        """6. The same bytes under the final name; then, if no other driver has the job, the effects outside the manifest."""
        manifest = epoch.manifest
        self._store.write_completed(manifest)
        self.fences.check(self.fence)
        self._effects.publish(manifest)
        self._effects.publish_refused(epoch.number, self.fence, epoch.refused)
        epoch.complete()
        self.at = manifest
        epoch.timings.lap(Phase.COMPLETE)
        self._tell(Phase.COMPLETE, epoch.number, manifest)
        inform(self.participants, epoch)

    def _prune(self, epoch: Epoch) -> None:
        self._parts.pruner.prune(self.fence, epoch.manifest)
        self._parts.redelivery.prune(self._parts.pruner.oldest)
        epoch.finish()
        epoch.timings.lap(Phase.PRUNE)
        self._tell(Phase.PRUNE, epoch.number)
        inform(self.participants, epoch)

    def _new_stem(self) -> str:
        return f"{self.fence}-{self._new_uid()[:8]}"

    def _tell(self, phase: Phase, epoch: int, manifest: Manifest | None = None) -> None:
        if self._listener is not None:
            self._listener.on_phase(phase, epoch, manifest)

    # ---- between epochs -------------------------------------------------------------------------------------------

    def save(self, name: str, by: str, note: str) -> SavepointRecord:
        """A savepoint of the newest checkpoint, in the foreground. No epoch may be in flight."""
        return self._parts.savepoints.take(self.at, self._parts.savepoints.begun(name, by, note))

    def beat(self) -> None:
        """Show other drivers that this one lives. May be called from any thread."""
        self.fences.beat()

    def attend(self) -> None:
        """Between two epochs, and while idle: refuse to go on if another driver has taken the job, and answer requests."""
        self._requests.attend(self.fences)
        if self._retries is not None:
            in_flight = list(self._in_flight)
            for participant in self.participants:
                participant.between(self.at, in_flight)

    @property
    def stop_requested(self) -> bool:
        """True if a signal, or a request that was read, asks for a stop."""
        return self._requests.stop_requested

    @property
    def drain_requested(self) -> bool:
        """True if a request that was read asks to stop when the present input has been read."""
        return self._requests.drain_requested

    @property
    def refusals(self) -> Mapping[str, int]:
        """Rows that sinks refused at a commit of this driver: how many are "dropped", how many "dead_letters"."""
        return self._parts.sinks.refusals

    @property
    def in_doubt(self) -> Sequence[InDoubt]:
        """Under at-most-once: input in doubt that this driver found, and that of its own epochs that broke off."""
        return self._parts.doubts.found

    def unsettled(self) -> bool:
        """True if events wait for another attempt, or to be acknowledged."""
        return bool(self._parts.redelivery.waiting)

    def asks(self) -> bool:
        """True if sources are read by report: whether there is input is known when an epoch has polled them."""
        return self._parts.planner.asks

    def behind(self) -> bool:
        """True if an epoch is in flight, or the last plan could not take all the input that was there."""
        return self._parts.planner.limited or (bool(self._in_flight) and not self._host.continuous)

    def is_caught_up(self) -> bool:
        """True if a run that ends where the input ends has read all of it."""
        return self._host.continuous and self._parts.planner.is_caught_up(self.at.positions)

    def close(self) -> None:
        """Release everything; any driver can start the job again."""
        unprepared = list(self._in_flight) if self._retries is not None else []
        for participant in self.participants:
            participant.close(unprepared)
        if self._retries is not None:
            self._retries.clear()
        with contextlib.suppress(OSError):  # then the next driver waits a little longer
            self.fences.end()
