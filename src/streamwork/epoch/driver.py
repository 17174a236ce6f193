"""The driver: walks one epoch after another through its steps. An epoch is the unit of everything: one slice of input, one
version of the state, one transaction per sink, one manifest.

    1  plan      the positions from a to b are written before anything is computed
    2  compute   each instance writes its changed records and its outputs (`engine.attempt`)
    3  report    each instance names its files, their hashes and what it counted; the attempts must agree (`epoch.agreement`)
    4  prepare   the manifest is written as prepared
    5  commit    each sink, in its own transaction, by the commit rule (`components.commit_rule`)
    6  complete  the same bytes are written as completed
    .  prune     what is not kept any more is removed (`epoch.retention`)

What a crash leaves, and what the next start (R, `epoch.recovery.recovery`) does with it:

    after 1            a plan without manifest: its number is spent; the parent's positions are read again
    during 2, 3        files that no manifest names; likewise
    after 4            a prepared manifest: R commits its staged outputs to every sink and completes it. Nothing is computed
                       again, so operators may be random
    during 5           some sinks have the epoch, some do not: R offers it to all, and the ledger tells those that have it
    after 5, before 6  likewise; every ledger says "it is there"
    after 6            nothing to do
    during prune       some files are there that nobody names: R removes them

Without the ledger a sink that committed just before the crash would get the same rows again in R.

Under other semantics than exactly-once the instances write to the sinks in 2, and 5 commits nothing (`job.semantics`):

    at-least-once    a crash before 4 makes the next start compute, and write, the same slice again
    at-most-once     what was planned is never read again: the next start goes on behind the newest plan, with the state of the
                     newest manifest. So the plan is durable before anything is written; a driver that finds, right after it
                     wrote a plan, that it has lost the job, computes nothing; and of several attempts at an epoch only the
                     first may write (its claim). An epoch that comes to nothing is lost, too

Overlap. While there is a backlog and the host computes elsewhere, epoch N+1 is planned and submitted between 4 and 5 of N: its
slice, its states and its watermarks are those of the prepared manifest N, which is never abandoned. It is collected when N is
completed. If 5 or 6 of N fail, or the driver dies, N+1 has no manifest yet: its number is spent, as after 1.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from streamwork.components import Position, ReadProgress
from streamwork.delivery.counts import KINDS
from streamwork.delivery.retrying import Watch
from streamwork.engine import Abandoned, Assignment, Report
from streamwork.epoch import reported
from streamwork.epoch.agreement import disagreement, missing
from streamwork.epoch.allowance import Allowance
from streamwork.epoch.compactor import Background, Compactor, at_once
from streamwork.epoch.effects import Effects
from streamwork.epoch.fences import Drop, Fences
from streamwork.epoch.history.history import NoHistory, Recorder
from streamwork.epoch.history.lag import InputEnds
from streamwork.epoch.history.stopwatch import Stopwatch
from streamwork.epoch.host import Host
from streamwork.epoch.in_doubt import Doubts, InDoubt
from streamwork.epoch.in_doubt import lines as doubt_lines
from streamwork.epoch.manifest import Manifest, Plan, SinkPart
from streamwork.epoch.phases import Listener, Phase
from streamwork.epoch.planner import Planner
from streamwork.epoch.recovery.recovery import NOTHING, Chains, Recovery, not_held
from streamwork.epoch.redelivery import Redelivery
from streamwork.epoch.retention import kept
from streamwork.epoch.sinks import Sinks
from streamwork.epoch.slices import ranges, timed_partitions
from streamwork.epoch.store import Store
from streamwork.epoch.views import Views
from streamwork.errors import JobFailed, StreamworkError
from streamwork.job import Graph, Layout, Settings
from streamwork.state import StateFiles
from streamwork.world import Clock, Processes, RealProcesses, SteadyClock

KEEP_SECONDS = 10.0
"""How often sources are told from where on they are needed. Late news only means that they keep more."""

TIDY_EVERY = 20
"""After so many epochs, files of attempts that came to nothing are looked for."""

ATTEMPTS = 3
"""So often an epoch is computed whose attempts do not agree."""


class Started(msgspec.Struct, frozen=True):
    """What a start found and did."""

    fence: int
    new: bool
    resumed_at: int
    rolled_forward: int | None
    story: tuple[str, ...] = ()
    skipped: dict[
        str, tuple[int, int]
    ] = {}  # what sources that start at the latest pass over: source/partition -> from, to


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
        stopping: Callable[[], bool] = lambda: False,
        drop: Drop = NOTHING,
    ) -> None:
        """`depth` is how many epochs may be under way at a time; `background` is where snapshots are made. With `overlap` an
        epoch is computed while the sinks commit the one before it; None: where the host can. `refill` names sinks that are
        filled again, with what is kept, if they are lost. `stopping` tells whether a stop is asked for: then no epoch waits for
        an event to be tried again. It is asked often, and from any thread.
        """
        self.graph = graph
        self.at: Manifest
        self.fences = Fences(store.disk, store.folder, clock, processes or RealProcesses())
        self._settings = settings
        self._layout: Layout  # of the number of key groups that the job's folder was made with
        self._store = store
        self._host = host
        self._clock = clock
        self._new_uid = new_uid
        self._listener = listener
        self._stopping = stopping
        self._take_over = take_over
        self._sinks = Sinks(graph, store)
        self._recovery = Recovery(
            graph, store, self.fences, self._sinks, accept_divergence, change_semantics, refill, drop
        )
        self._drop = drop
        self._effects = Effects(store)
        steady = SteadyClock(clock)
        self._retries = any(node.retry is not None for node in graph.nodes)
        self._undone = Redelivery(graph, settings, store, self._new_stem, lambda: round(steady.now() * 1_000_000))
        files = StateFiles(store.disk, store.folder)
        self._views = Views(graph, store, self.fences)
        self._compactor = Compactor(graph, files, settings.groups, background, self._new_stem)
        recorder = history or NoHistory()
        self._watch = Stopwatch(clock, recorder)
        self._doubts = Doubts(graph, recorder)
        self._planner = Planner(graph, store, self._undone, InputEnds(graph, clock, recorder), self._now)
        # What is polled may come to nothing, and what comes again is known when an epoch is done: nothing is built on it before.
        in_turn = bool(graph.polled) or graph.promise.acknowledges
        self._overlap = (host.overlaps if overlap is None else overlap) and not in_turn
        self._depth = 1 if in_turn else depth
        self._under_way: deque[Plan] = deque()
        self._tip: Manifest  # what the next epoch builds on: `at`, or its child that is prepared
        self._chains: Chains = {}  # the state files of the tip, without those that are damaged
        self._line: list[Manifest] = []  # `at` and its ancestors that are kept, newest first
        self._retrying: Watch | None = None  # the marks of tasks that try an event again; None before the start
        self._kept = self._tidied = 0.0
        self._kept_at = -1  # the epoch that sources were last told of

    # ---- recovery: before the first source is read (`epoch.recovery.recovery` numbers the steps) ----------------------------

    def start(self) -> Started:
        """Take the job over, and bring everything to one checkpoint."""
        identity = self._store.identity()
        new = identity is None
        started = self._store.newest_number() > 0 or self.fences.has_started()
        if identity is not None and started:
            self._recovery.look(identity)  # 1
        elif self._drop.components:
            raise not_held(self._drop.components, ())
        self.fences.wait(self._settings.lease, self._take_over)  # 2
        self._sinks.look("" if identity is None else identity.uid)
        if identity is not None and started:
            self._recovery.look_at_sinks(identity)
        self._sinks.open()
        if identity is None:
            identity = self._store.create(self.graph, self._new_uid(), self._settings.groups, self._clock)
        elif not started:  # it was created, and nobody has ever got it started
            self._store.mend_beginning(self.graph, identity)
        self._uid, self._groups = identity.uid, identity.groups
        self._layout = self._undone.layout = Layout.of(self.graph, identity.groups)
        killed = self.fences.cut_short()
        seen = [row.fence for row in self._sinks.ledgers(self._uid).values() if row is not None]
        self.fence = self.fences.claim(max(seen, default=0), self._settings.lease).fence  # 3
        self._retrying = Watch(self._store.disk, self._store.folder, self.fence, self._clock.monotonic)
        self._retrying.clear()
        self._sinks.register(self._uid, self.fence, lambda name: self._tell(Phase.REGISTER, 0))  # 4
        choice = self._recovery.read(identity, self.fence)  # 5
        self._tell(Phase.READ, choice.at.epoch)
        found = self._recovery.finish(choice, self.fence, lambda step, m: self._tell(step, m.epoch))  # 6, 7, 8
        self.at = self._tip = found.at
        self._chains = found.chains
        self.fences.check(self.fence)
        self._effects.publish(self.at)
        let_go = self._undone.resume(self.at, self.fence)
        lost = Position()
        doubts: Sequence[InDoubt] = ()
        if self.graph.promise.at_most_once:
            plans = self._recovery.plans_beyond(self.at)
            lost = self._recovery.planned_beyond(plans)
            doubts = self._doubts.recovered(plans, killed)
        self._line = self._recovery.tidy(found, self.fence, self._settings.retain)  # 9
        self._undone.prune(self._line[-1])
        self._tell(Phase.PRUNE, self.at.epoch)
        self._views.begin(self.fence, self._groups)
        if found.rolled_forward:
            self._watch.rolled_forward(self.at, self._sinks.refused(self.at.epoch))
        else:
            self._watch.resumed(self.at)
        self._deterministic = self.graph.deterministic or bool(choice.ahead)
        skipped = self._planner.resume(self.fence, self.at.positions, found.route, lost)
        self._keep()
        told = [
            f"{name}: offsets {was:,} to {to:,} are skipped, it starts at the latest"
            for name, (was, to) in skipped.items()
        ]
        rolled_forward = self.at.epoch if found.rolled_forward else None
        story = (*found.story, *doubt_lines(doubts), *let_go, *told)
        return Started(self.fence, new, self.at.epoch, rolled_forward, story, skipped)

    def end_where_input_ends(self) -> None:
        """After a start: read what is there now, and then plan nothing more. Sources that can only be asked are, in one epoch."""
        self._planner.end_where_input_ends(self.at.positions)

    def beat(self) -> None:
        """Show others that this driver lives. May be called from any thread."""
        self.fences.beat()

    # ---- one epoch ----------------------------------------------------------------------------------------------

    def run_epoch(self, last: bool = False, go_on: Callable[[], bool] = lambda: True) -> Manifest | None:
        """Steps 1 to 6. None if there is no new input; if it is the `last`, none is planned that is not under way.

        An epoch that is abandoned is followed by the next one as long as `go_on()` says so; otherwise the result is None.
        """
        try:
            while True:
                if not last:
                    self._begin(self._depth)
                if not self._under_way:
                    if self._kept_at != self.at.epoch:
                        self._keep_if_due()
                    return None
                plan = self._under_way.popleft()
                try:
                    return self._run_epoch(plan, last)
                except Abandoned:
                    self._abandon(plan)
                if not go_on():
                    return None
        except Exception:
            self.fences.check(self.fence)  # whatever a driver meets that has lost its job, this is why
            raise

    def _run_epoch(self, plan: Plan, last: bool) -> Manifest | None:
        """Steps 3 to 6 of an epoch that is under way; None if nothing has happened in it. Raises `Abandoned` instead of 4."""
        try:
            reports = self._collect(plan)
        except Abandoned:
            raise
        except Exception as error:
            code = error.code if isinstance(error, StreamworkError) else type(error).__name__
            self._watch.failed(plan, self._host.wasted(), code)
            raise
        self._tell(Phase.REPORT, plan.epoch)
        if self._nothing_happened(plan, reports):
            self._undone.forget(plan)
            self._doubts.settle(plan)
            self._watch.idle(plan)
            self._planner.idle(plan)
            return None
        try:
            manifest = self._prepare(plan, reports)
        except FileExistsError as error:  # somebody has used that number: it is spent
            self._host.abandon()
            raise Abandoned(plan.epoch) from error
        self._tell(Phase.PREPARE, plan.epoch)
        if self._overlap and self._planner.limited and not last:
            self.fences.check(self.fence)  # who has lost the job plans nothing more
            self._begin(1)
        self._commit(manifest)
        self._complete(manifest)
        self._tell(Phase.COMPLETE, plan.epoch, manifest)
        self._sinks.observe(manifest)
        self._compactor.begin(manifest)
        self._prune()
        self._tell(Phase.PRUNE, plan.epoch)
        self._watch.completed(manifest, self._sinks.refused(manifest.epoch))
        self._keep_if_due()
        return manifest

    def _nothing_happened(self, plan: Plan, reports: Sequence[Report]) -> bool:
        """True if sources that are polled had nothing to say and are where they were, and nothing else was due."""
        if not self.graph.polled or reported.events(self.graph, reports):
            return False
        if reported.moved(self.graph, self._chains, reports):
            return False
        if any(report.troubles or report.acked for report in reports):
            return False
        return plan.start.reaches(plan.end) and not self._undone.is_due()

    def _begin(self, depth: int) -> None:
        """1 and 2, of as many epochs as may be under way."""
        while len(self._under_way) < depth and (plan := self._plan()) is not None:
            self._tell(Phase.PLAN, plan.epoch)
            self._submit(plan)

    def _abandon(self, plan: Plan) -> None:
        """Instead of 4: the epoch comes to nothing, and so does what was built on it. The next starts from the same parent; under
        at-most-once behind it, since some of it may have been written.
        """
        for spent in (plan, *self._under_way):
            if self.graph.promise.at_most_once:
                self._planner.lose(spent)
            self._sinks.withdraw(spent.epoch)
            self._undone.forget(spent)
            self._doubts.broke_off(spent)
        self._under_way.clear()
        self._watch.abandoned(plan, self._host.wasted())
        self._tell(Phase.ABANDON, plan.epoch)

    def _plan(self) -> Plan | None:
        """1. Fix the slice."""
        before = self._under_way[-1] if self._under_way else None
        at, parent = (before.end, before.epoch) if before else (self._tip.positions, self._tip.epoch)
        plan = self._planner.plan(at, parent, self._watch.begin)
        if plan is not None:
            self._watch.lap(plan.epoch, Phase.PLAN)
            if not self.graph.promise.exactly_once:  # who took the job before this plan was there does not know of it
                self.fences.check(self.fence)
        return plan

    def _submit(self, plan: Plan) -> None:
        """2. By the host. An epoch may be submitted before the one before it is completed; it is completed after it."""
        brought = self._undone.begin(plan)
        retried = tuple(one.event_id for one in brought.again)
        works = [
            Assignment(
                chain=number,
                instance=instance,
                uid=self._uid,
                folder=str(self._store.folder),
                groups=self._groups,
                epoch=plan.epoch,
                fence=self.fence,
                ranges=(mine := ranges(self.graph, chain.nodes, instance, plan.start, plan.end)),
                marks={} if self.graph.promise.exactly_once else self._planner.identities.marks(mine),
                watermarks=timed_partitions(self.graph, chain.nodes, instance, self._tip.watermarks),
                ticks=plan.ticks,
                read={node.id: plan.start[f"{node.id}/{instance}"] for node in self.graph.polled},
                states={name: stored[str(instance)] for name, stored in self._chains.items() if name in chain.nodes},
                replays=brought.share(chain.nodes, instance),
                lanes=brought.lanes,
                retried=retried,
                unasked=self._planner.unasked,
                asking=self._settings.checkpoint_every,
                memory=self._settings.state_memory // max(1, sum(n.parallelism for n in self.graph.stateful)),
            )
            for number, chain in enumerate(self._layout.chains)
            for instance in range(chain.parallelism)
        ]
        self._doubts.begin(plan)
        self._host.submit(self._layout, works)
        self._under_way.append(plan)

    def _collect(self, plan: Plan) -> Sequence[Report]:
        """3. Has everyone reported, and do the attempts agree? Else the epoch is computed again."""
        retrying = self._retrying
        assert retrying is not None
        allowed = Allowance(
            self._settings.checkpoint_timeout,
            self._clock.monotonic,
            lambda: self._retries and bool(retrying.fresh(plan.epoch)),
            self._stopping,
            retrying.end if self.graph.promise.at_most_once else None,
        )
        try:
            return self._agreed(plan, allowed.expired)
        finally:
            retrying.clear(plan.epoch)

    def _agreed(self, plan: Plan, expired: Callable[[], bool]) -> Sequence[Report]:
        for _ in range(ATTEMPTS):
            reports = self._host.collect(plan.epoch, expired)
            self._tell(Phase.COMPUTE, plan.epoch)
            if lacking := missing(self.graph, reports):
                raise JobFailed(
                    "SW-EPOCH-REPORTS",
                    f"epoch {plan.epoch}: not every instance reported exactly once: {lacking}",
                    "start again: the last checkpoint is good. If it comes back, it is a fault in Streamwork: report it",
                )
            self._watch.reported(plan.epoch, reports)
            if not (trouble := disagreement(self._layout, reports)):
                self._watch.lap(plan.epoch, Phase.COMPUTE)
                return reports
            if self.graph.promise.at_most_once:  # some of it may have been written
                raise Abandoned(plan.epoch)
            self._under_way.clear()  # what was built on it is computed again, too
            self._submit(plan)
            self._under_way.pop()
        raise JobFailed(
            "SW-EPOCH-ATTEMPTS",
            f"epoch {plan.epoch} was computed {ATTEMPTS} times, and tasks were run again each time: {trouble}",
            "look for workers that die (memory?), and start again: the last checkpoint is good",
        )

    def _prepare(self, plan: Plan, reports: Sequence[Report]) -> Manifest:
        """4. From here on the epoch is never abandoned, only rolled forward."""
        self._planner.identities.keep()  # what was read is what was planned
        settled = self._undone.settle(plan, reports)
        counters = {node.id: reported.counters(node.id, reports) for node in self.graph.nodes}
        for name, changes in settled.counts.items():  # a component may be gone that has not acknowledged an event
            mine = counters.setdefault(name, dict.fromkeys(KINDS, 0))
            mine.update((kind, mine[kind] + change) for kind, change in changes.items())
        manifest = Manifest(
            epoch=plan.epoch,
            parent=self.at.epoch,
            parent_sha256=self.at.sha256,
            fence=self.fence,
            uid=self._uid,
            positions=plan.end.moved(reported.polled_positions(self.graph, self.at.positions, reports)),
            components=self._compactor.install(
                {node.id: reported.chains(node.id, reports) for node in self.graph.stateful}, self._chains, plan.epoch
            ),
            sinks={
                node.id: SinkPart(reported.staged(node.id, reports), first=node.id not in self.at.sinks)
                for node in self.graph.sinks
                if self.graph.stages(node)
            },
            counters=counters,
            fingerprint=self.graph.fingerprint,
            failed=settled.failed,
            taken=settled.taken,
            letters=settled.letters,
            watermarks={
                **self.at.watermarks,
                **{f"{r.component}/{part}": at for r in reports for part, at in r.watermarks.items()},
            },
        )
        waiting = [report.next_tick for report in reports if report.next_tick is not None]
        self._planner.next_tick = min(waiting, default=None)
        self._store.write_prepared(manifest)
        self._undone.prepared(settled)
        self._doubts.settle(plan)
        self._tip, self._chains = manifest, manifest.components
        self._watch.lap(plan.epoch, Phase.PREPARE)
        return manifest

    def _commit(self, manifest: Manifest) -> None:
        """5. Offer the staged outputs to every sink: the ledger decides."""
        for name in self._sinks.ids:
            self._sinks.offer(name, manifest, self.at, self._deterministic)
            self._tell(Phase.COMMIT, manifest.epoch)
        self._watch.lap(manifest.epoch, Phase.COMMIT)

    def _complete(self, manifest: Manifest) -> None:
        """6. The same bytes under the final name; then, if no other driver has the job, the effects outside the manifest."""
        self._store.write_completed(manifest)
        self.fences.check(self.fence)
        self._effects.publish(manifest)
        self._effects.publish_refused(manifest.epoch, self.fence, self._sinks.left_out(manifest.epoch))
        self.at = manifest
        self._line.insert(0, manifest)
        self._planner.reached(manifest.positions)
        if not self._planner.catches_up:
            self._deterministic = self.graph.deterministic
        self._watch.lap(manifest.epoch, Phase.COMPLETE)

    def _prune(self) -> None:
        """Remove what is not kept any more: manifests, then the files that only they named, then plans.

        A driver that has lost its job stops here: what it would remove may be what the new one builds on.
        """
        self.fences.check(self.fence)
        keep = kept(self._line, self._settings.retain, self._compactor.pinned)
        named = {path for manifest in keep for path in manifest.files}
        kept_epochs = {manifest.epoch for manifest in keep}
        gone = [manifest for manifest in self._line if manifest.epoch not in kept_epochs]
        for manifest in gone:
            self._store.remove_manifest(manifest.epoch)
        self._store.discard_files({path for manifest in gone for path in manifest.files if path not in named})
        self._undone.prune(keep[-1])
        if gone:
            self._store.remove_plans(below=keep[-1].epoch)
            self._store.remove_claims(below=keep[-1].epoch)
        if self.at.epoch >= self._tidied + TIDY_EVERY and not self._compactor.busy:
            self._tidied = self.at.epoch
            self._store.clean_up(self.fence, named, done=self.at.epoch)
        self._line = keep
        self._watch.lap(self.at.epoch, Phase.PRUNE)

    def _now(self) -> int:
        """Microseconds since 1970."""
        return round(self._clock.now() * 1_000_000)

    def _new_stem(self) -> str:
        return f"{self.fence}-{self._new_uid()[:8]}"

    def _tell(self, step: Phase, epoch: int, manifest: Manifest | None = None) -> None:
        if self._listener is not None:
            self._listener.on_phase(step, epoch, manifest)

    # ---- for people -----------------------------------------------------------------------------------------------

    @property
    def refusals(self) -> Mapping[str, int]:
        """Rows that sinks refused for good at a commit in this life of the job: how many are "dropped", how many
        "dead_letters"."""
        return self._sinks.refusals

    @property
    def in_doubt(self) -> Sequence[InDoubt]:
        """Under at-most-once: what this driver has found to be in doubt, and what broke off in its own hands."""
        return self._doubts.found

    def unsettled(self) -> bool:
        """True if events wait for another attempt, or to be acknowledged."""
        return bool(self._undone.waiting)

    def finished(self) -> bool:
        """True if no input will ever come again."""
        return all(node.component.bounded for node in self.graph.sources)

    def asks(self) -> bool:
        """True if there are sources that can only be asked for events in an epoch."""
        return bool(self.graph.polled)

    def behind(self) -> bool:
        """True if an epoch is under way, or the last one could not take all the input that was there when it was planned."""
        return self._planner.limited or bool(self._under_way)

    def _keep_if_due(self) -> None:
        if self._clock.monotonic() >= self._kept + KEEP_SECONDS:
            self._keep()

    def _keep(self) -> None:
        """Tell the sources from where on this job needs them: the oldest checkpoint that is kept must be able to go on."""
        self._kept, self._kept_at = self._clock.monotonic(), self.at.epoch
        for node in self.graph.planned:
            needed = self._line[-1].positions.of(node.id)
            read = self.at.positions.of(node.id)
            node.component.keep(ReadProgress(self._uid, self._store.folder.name, node.id, needed, read))
        self._views.look(self.fence)

    def close(self) -> None:
        """Let go of everything; the job can be started again by anyone."""
        if self._kept:
            with contextlib.suppress(StreamworkError, OSError):  # late news only means that sources keep more
                self.fences.check(self.fence)  # another driver may need what this one does not
                self._keep()
        self._store.discard_files(self._compactor.give_up())
        self._doubts.close()
        if self._retrying is not None:
            self._retrying.clear()
        self._sinks.close()
        self._watch.close()
        with contextlib.suppress(OSError):  # then whoever comes next waits a little longer
            self.fences.end()
