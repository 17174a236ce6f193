"""A chain: the steps between two exchanges, run by one instance. The only executor of operators.

    open(...)                 every operator is set up, with its state, before the first event
    tick(now)                 processing time advances
    process(source, ...)      events of one source partition, in offset order
    receive(channel, ...)     events and event time that come through an exchange
    drain()                   before a checkpoint: nothing waits in a step
    checkpoint()              the states are ready to be written; the counters of the steps

Results do not depend on how input is cut into batches: each batch passes the steps as a wave (`engine.wave`), in an order that
equals that of single events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamwork.components import Slice, TimerClock
from streamwork.components.collector import MAIN
from streamwork.components.times import from_microseconds, microseconds
from streamwork.delivery.retrying import Marks
from streamwork.engine.adaptive_batch import AdaptiveBatch
from streamwork.engine.ahead import limit_of, taken_out
from streamwork.engine.fired import Fired
from streamwork.engine.idleness import Idling
from streamwork.engine.latency import SinkMeter, Stopwatch
from streamwork.engine.planning import planned
from streamwork.engine.routes import To
from streamwork.engine.rows import rows_of
from streamwork.engine.source_count import SourceCount
from streamwork.engine.steps.batch_steps import BatchStep, KeyedBatchStep
from streamwork.engine.steps.key_check import KeyCheck
from streamwork.engine.steps.keyed_steps import KeyedStep
from streamwork.engine.steps.make import make_step
from streamwork.engine.steps.operator_steps import InstanceStep, SourceStep
from streamwork.engine.steps.sink_steps import StageStep, WriteStep
from streamwork.engine.steps.staging import Staging
from streamwork.engine.steps.step import Step
from streamwork.engine.steps.table_step import TableStep
from streamwork.engine.wave import Leaving, Wave
from streamwork.flow.acks import Acks
from streamwork.flow.batch import Batch, merged
from streamwork.flow.blame import Blame
from streamwork.flow.channel import NO_ADVANCES, Advances, Data
from streamwork.flow.lineage import NEVER, Array, Lineage, root_of
from streamwork.flow.needs import Needs
from streamwork.flow.origins import origins_of
from streamwork.flow.progress import Progress, rises
from streamwork.flow.times import latest, times_of
from streamwork.job import Graph, Input, NodeKind
from streamwork.state import State
from streamwork.world import Disk

AHEAD = 100_000
"""Microseconds that records of fired timers are ahead where events are processed all the time."""
_log = logging.getLogger(__name__)


class Chain:
    """Lives in one process, from epoch to epoch; after an error it is discarded and a new one is set up."""

    def __init__(
        self, graph: Graph, nodes: Iterable[str] | None = None, instance: int = 0, needs: Needs | None = None
    ) -> None:
        mine = set(nodes) if nodes is not None else {node.id for node in graph.nodes}
        self.graph = graph
        self.instance = instance
        self.nodes = tuple(node for node in graph.nodes if node.id in mine)
        self._needs = needs or Needs(roots=graph.promise.acknowledges)
        self._steps = {
            node.id: make_step(graph, node, instance) for node in self.nodes if node.kind is not NodeKind.SOURCE
        }
        self._sources = {node.id: SourceCount() for node in self.nodes if node.kind is NodeKind.SOURCE}
        self.polled = {node.id: SourceStep(node, instance) for node in self.nodes if node in graph.polled}
        self.reads = bool(self._sources)  # True if it begins with sources
        self.idling = Idling(node for node in self.nodes if node.kind is NodeKind.SOURCE)
        self._times = {node.id: node.time for node in self.nodes if node.time is not None}
        self.now = from_microseconds(0)  # processing time of the epoch under way
        self.checkpoint = 0  # the number of the epoch under way
        for source in self.polled.values():
            source.times = self
        self._plan, self._timed, self._walks, self._leaves = planned(graph, self.nodes, self._steps, self._needs, self)
        self.outbox: list[Leaving | datetime] = []  # what goes to other chains, and how far event time has come
        self.progress = Progress()
        self.adaptive: AdaptiveBatch | None = None  # where rows are to be visible early
        self._replays = False  # under acknowledging: True if events of earlier epochs are among those of this one
        self._lanes: dict[str, int] = {}  # under acknowledging: the number of each source partition in this epoch
        self.stopwatch: Stopwatch | None = None  # where latencies are measured
        self.meters: tuple[SinkMeter, ...] = ()  # of its sinks, likewise
        self.is_set_up = False
        self.waiting: Step | None = None
        """The step whose event waits to be retried (`engine.steps.retrying`). Meanwhile everything else is deferred."""
        self._wave: Wave | None = None
        self._finish: Callable[[Wave], None]
        self._deferred: list[Callable[[], None]] = []

    # ---- an epoch -----------------------------------------------------------------------------------------------

    def open(
        self,
        states: Mapping[str, State],
        stagings: Mapping[str, Staging],
        claim: Callable[[str], bool] = lambda sink: True,
        marks: Marks | None = None,
    ) -> None:
        """Begin an epoch with these states and places for outputs. `claim` returns whether a sink may be written to; `marks`
        records what waits to be retried.
        """
        working = {**self._steps, **self.polled}
        for name, step in working.items():
            step.reset()
            if step.tries is not None:
                assert marks is not None, "a step that retries needs a clock"
                step.tries.begin(marks)
            if isinstance(step, KeyedStep | KeyedBatchStep | InstanceStep):
                if step.node.keeps is not None:
                    state: Any = states[name]  # of the kind that the step keeps (`engine.instance.row_format`)
                    step.state = state
            elif isinstance(step, TableStep):
                if step.node.keeps is not None:
                    step.state = states[name]
                tables = self.graph.tables_of(step.node)
                step.tables = {port: states[one.node] for port, one in tables.items()}
            elif isinstance(step, StageStep):
                step.staging = stagings[name]
            elif isinstance(step, WriteStep):
                step.claim = partial(claim, name)
        self._sources = {name: SourceCount() for name in self._sources}
        for step in working.values():
            stale = isinstance(step, InstanceStep) and step.node.keeps is not None and step.is_stale
            if not self.is_set_up or stale:
                step.set_up()
        self.is_set_up = True

    def settle(self, folder: Path) -> None:
        """Name the job's folder to its components, before they are set up."""
        for step in (*self._steps.values(), *self.polled.values()):
            step.instance.folder = folder

    def hurry(self, guard: Callable[[], None]) -> None:
        """Let no row wait for others in a step. `guard` is called before each write to a sink."""
        for step in self._steps.values():
            if isinstance(step, KeyedStep | TableStep) and step.fired is not None:
                step.fired.ahead = AHEAD
            if isinstance(step, BatchStep):
                step.rows = 1
            elif isinstance(step, WriteStep):
                step.rows, step.guard = 1, guard

    def measure(self, now: Callable[[], float]) -> None:
        """Measure how long events take to the sinks. `now` gives seconds since 1970."""
        self.stopwatch = watch = Stopwatch(now)
        for name, step in self._steps.items():
            if isinstance(step, StageStep | WriteStep):
                step.meter = SinkMeter(name, isinstance(step, StageStep), watch)
                self.meters += (step.meter,)

    def guard_times(self, disk: Disk, folder: Path) -> None:
        """Under at-most-once: let steps record up to which time they have emitted what was due (`engine.fired`)."""
        for name in self._timed:
            step = self._steps[name]
            assert isinstance(step, KeyedStep | TableStep)
            step.fired = Fired(disk, folder, name, self.instance, step.node.parallelism)

    def begin_times(self, epoch: int, attempt: str, parent: int | None) -> None:
        """An epoch begins. If its state was restored, from checkpoint `parent`, drop what epochs in between may have written."""
        for name in self._timed:
            step = self._steps[name]
            if isinstance(step, KeyedStep | TableStep) and step.fired is not None:
                if parent is not None and parent < epoch - 1:
                    for clock, until in step.fired.lost(parent, epoch).items():
                        step.drop_due(clock, until)
                step.fired.begin(epoch, attempt)

    def check_keys(self, groups: int) -> None:
        """Check that keys which reach a step without an exchange belong to this instance."""
        for step in self._steps.values():
            fused = all(one.node in self._steps or one.node in self._sources for one in step.node.inputs)
            if not isinstance(step, KeyedStep | KeyedBatchStep | TableStep) or step.node.key is None:
                continue
            if step.node.parallelism > 1 and fused:
                step.check_keys = KeyCheck(self.graph, step.node, self.instance, groups)

    def track(self, lanes: dict[str, int], name: Callable[[int], str], replays: bool) -> None:
        """The events of this epoch are acknowledged: `lanes` numbers the source partitions, `name` gives a root its event id.
        `replays`: some of them are replayed.
        """
        self._lanes, self._replays = dict(lanes), replays
        for step in self._steps.values():
            step.track(name)

    def tick(self, now: datetime) -> None:
        """Processing time has come to `now`."""
        self.now = now
        if self.stopwatch is not None:
            self.stopwatch.start()
        self._do(self._let_idle)
        if self._timed:
            moments = self._plan.routes.behind(np.zeros(1, np.int64))
            advances = Advances(moments, np.array([microseconds(now)]))
            self._do(lambda: self._pass(self._new_wave(advances, self.progress.minimum, TimerClock.PROCESSING)))

    def _let_idle(self) -> None:
        """Processing time has advanced: partitions may be idle now, and event time advances without them."""
        before = self.progress.minimum
        self.idling.tick(microseconds(self.now), self.progress)
        self._catch_up(before)

    def _catch_up(self, before: int | None) -> None:
        """The minimum may have risen, though no input has advanced."""
        after = self.progress.minimum
        if after is not None and after != before:
            advances = Advances(self._plan.routes.behind(np.zeros(1, np.int64)), np.array([after]))
            self._enter([], advances, before)

    def idle(self, channel: str, is_idle: bool) -> None:
        """All inputs of a sender are idle, or one of them no longer is."""
        self._do(partial(self._idle, channel, is_idle))

    def _idle(self, channel: str, is_idle: bool) -> None:
        before = self.progress.minimum
        if is_idle:
            self.progress.mark_idle(channel)
        else:
            self.progress.wake(channel)
        self._catch_up(before)

    def process(self, source: str, partition: str, piece: Slice) -> None:
        """Events of one source partition, in offset order."""
        if self.stopwatch is not None:
            self.stopwatch.start()
        counted = self._sources[source]
        came, behind = counted.add(piece), source
        for behind, left_out in piece.left_out.items():
            self._steps[behind].count(came, left_out)
            came -= left_out
        batch = Batch(piece.given, self._lineage(source, partition, piece))
        self._do(partial(self._begin, behind, batch, self._times.get(source), f"{source}/{partition}"))

    def _lineage(self, source: str, partition: str, piece: Slice) -> Lineage | None:
        """The position of each event of a slice, as far as it is needed."""
        count, roots, origins = len(piece.given), None, None
        if self._needs.origins and count:
            origins = origins_of(source, partition, piece.offsets)
        if self._needs.roots:
            read = self._sources[source].read
            first = root_of(self._lanes[f"{source}/{partition}"], read.get(partition, 0))
            read[partition] = read.get(partition, 0) + count
            roots = np.arange(first, first + count, dtype=np.int64)
        return None if roots is None and origins is None else Lineage(roots, origins)

    def read_so_far(self, source: str, partition: str) -> int:
        """Under acknowledging: how many events of a partition have come in this epoch."""
        return self._sources[source].read.get(partition, 0)

    def new_failures(self) -> list[int]:
        """Under acknowledging: the roots of the events that have failed since the last call."""
        return [root for step in self._steps.values() if step.acks is not None for root in step.acks.new_failures()]

    def replay(self, to: str, batch: Batch) -> None:
        """Replayed events, or events from the inbox: to the component that they failed at, or again from their source. Event time
        does not advance.
        """
        if self.stopwatch is not None:
            self.stopwatch.start()
        if to in self._sources:
            counted = self._sources[to]
            counted.delivered += len(batch)
            counted.replayed += len(batch)
            self._do(partial(self._begin, to, batch, None, ""))
        else:  # from the inbox: they have no root
            name = to.partition(":")[0]
            port = self.graph[name].at(to)
            assert port is not None, "the driver knows its ports"
            self._steps[name].replayed += len(batch)
            entry = (To(name, port.name), batch, None)
            self._do(lambda: self._enter([entry], NO_ADVANCES, self.progress.minimum))

    def receive(self, channel: str, data: Data) -> None:
        """Events that came through an exchange, and the advances of their sender's watermark."""
        self._do(partial(self._receive, channel, data))

    def advance(self, channel: str, watermark: datetime) -> None:
        """The watermark of an input has advanced."""
        times = np.array([microseconds(watermark)])
        self._do(partial(self._receive, channel, Data(0, (), Advances(np.full(1, -1), times))))

    def drop(self, component: str, events: int) -> None:
        """So many events for a component were dropped in a channel, because this instance lagged."""
        step = self._steps[component]
        step.processed += events
        step.dropped += events

    def drain(self) -> None:
        """Before a checkpoint: process what waits in steps."""
        self._do(lambda: self._pass(self._new_wave(watermark=self.progress.minimum, drains=True)))

    def resume(self) -> None:
        """Retry the event that waits, and go on with what was deferred. To be called when `waiting.tries.is_due()`."""
        assert self._wave is not None
        self.waiting = self._wave.resume()
        if self.waiting is None:
            self._finish(self._wave)
        elif not self._needs.order:
            self._send(self._wave)
        deferred, self._deferred = self._deferred, []
        for act in deferred:
            self._do(act)

    def end(self) -> dict[str, dict[str, int]]:
        """An epoch ends, between two events: bring the states up to date. Returns the counters of every component."""
        for step in (*self._steps.values(), *self.polled.values()):
            if isinstance(step, InstanceStep) and step.node.keeps is not None:
                self._store_state(step)
        return self.counters()

    def store_states(self, component: str) -> None:
        """Between two events: bring the state of an operator up to date, if it holds its own."""
        step = self._steps[component]
        if isinstance(step, InstanceStep):
            self._store_state(step)

    def counters(self) -> dict[str, dict[str, int]]:
        """The counters of every component in this epoch."""
        counted = {name: source.counters() for name, source in self._sources.items()}
        counted.update((name, step.counters()) for name, step in self._steps.items())
        return counted

    def letters(self) -> dict[str, list[tuple[Any, str]]]:
        """The dead letters of every component, and why. What a source could not read is text."""
        found: dict[str, list[tuple[Any, str]]] = {name: list(source.letters) for name, source in self._sources.items()}
        found.update((name, step.letters) for name, step in self._steps.items())
        return {name: letters for name, letters in found.items() if letters}

    def letter_port(self, component: str, place: int) -> str:
        """The port that a dead letter of a component came to, as an address."""
        step = self._steps.get(component)
        port = step.letter_ports.get(place) if isinstance(step, TableStep) else None
        return component if port is None else self.graph[component].address(port)

    def acks(self, component: str) -> Acks | None:
        """The acknowledgements and failures of a component's events."""
        step = self._steps.get(component)
        return step.acks if step is not None else None

    @property
    def follows_clock(self) -> bool:
        """True if something may happen when processing time advances."""
        return bool(self._timed) or self.graph.idles

    def next_tick(self) -> datetime | None:
        """When the next timer of processing time is due."""
        found = [_next_tick(self._steps[name]) for name in self._timed]
        idle = self.idling.next_time(self.progress)
        found.append(None if idle is None else from_microseconds(idle))
        return min((at for at in found if at is not None), default=None)

    def close(self) -> None:
        for step in (*self._steps.values(), *self.polled.values()):
            if step.node.kind is not NodeKind.SINK:
                try:
                    step.operator.close()
                except Exception:
                    _log.warning("closing %s raised", step.node.id, exc_info=True)  # its work is stored already

    # ---- waves --------------------------------------------------------------------------------------------------

    @property
    def watermark(self) -> datetime | None:
        """How far event time has come in all inputs; None while one of them has brought none."""
        minimum = self.progress.minimum
        return None if minimum is None else from_microseconds(minimum)

    def _do(self, act: Callable[[], None]) -> None:
        """Do something now, or when the event that waits has been retried."""
        if self.waiting is None:
            act()
        else:
            self._deferred.append(act)

    def _begin(self, behind: str, batch: Batch, time: str | None, name: str) -> None:
        """Events of a source, which go on behind it or behind a filter that was applied there."""
        rows, times = np.empty(0, np.int64), np.empty(0, np.int64)
        if time is not None and len(batch):
            batch, found, at = self._timed_batch(batch, time, name)
            self.idling.came(name, microseconds(self.now), self.progress)
            if found is not None:
                before, rows = rises(found, self.progress.of(name))
                times = found[rows]
                if self._needs.watermarks:
                    kept = batch.lineage or Lineage()
                    batch = Batch(batch.given, Lineage(kept.roots, kept.origins, before))
            elif len(batch) and ((known := self.progress.of(name)) is None or at > known):
                rows, times = np.array([len(batch) - 1]), np.array([at])
        watermark, routes = self.progress.minimum, self._plan.routes
        advances = self._advanced(name, rows, times)
        wave = self._new_wave(advances, watermark)
        wave.deliver(behind, {MAIN: routes.begin(behind, batch) if routes.needs_moments(behind) else batch})
        self._pass(wave, advances)

    def _timed_batch(self, batch: Batch, time: str, name: str) -> tuple[Batch, Array | None, int]:
        """(the events that are not too far ahead, their times where each matters, the latest of these)"""
        every = self._walks or self._needs.watermarks
        found = times_of(batch.given, time) if every else None
        at = latest(batch.given, time) if found is None else int(found.max())
        node = self.graph[name.partition("/")[0]]
        if at <= (limit := limit_of(node, microseconds(self.now))):
            return batch, found, at
        times = times_of(batch.given, time) if found is None else found
        kept = taken_out(node, batch, times, limit, self._sources[node.id])
        times = times[kept]
        return batch.take(kept), times if every else None, int(times.max(initial=NEVER))

    def _receive(self, channel: str, data: Data) -> None:
        rows, after = rows_of(data)
        known = self.progress.of(channel)
        first = 0 if known is None else data.advances.times.searchsorted(known, "right")
        watermark = self.progress.minimum
        advances = self._advanced(channel, after[first:], data.advances.times[first:])
        entries = [(To(p.to, p.port), p.batch, mine) for p, mine in zip(data.parts, rows, strict=True)]
        if self.adaptive is not None and len(entries) == 1 and not len(advances.times):
            to, batch, _ = entries[0]
            for piece in self.adaptive.cut(batch):
                self._do(partial(self._enter, [(to, piece, None)], NO_ADVANCES, watermark))
        else:
            self._enter(entries, advances, watermark)

    def _enter(
        self,
        entries: list[tuple[To, Batch, Array | None]],
        advances: Advances = NO_ADVANCES,
        watermark: int | None = None,
    ) -> None:
        """Batches that begin with steps, and the row of each of their events."""
        wave, routes = self._new_wave(advances, watermark), self._plan.routes
        for to, batch, rows in entries:
            needs = routes.needs_moments(to.step)
            wave.arrive(to, routes.begin(to.step, batch, rows) if needs else batch.at(None))
        self._pass(wave, advances)

    def _advanced(self, name: str, rows: Array, times: Array) -> Advances:
        """Advance an input's watermark. Returns the minima over all inputs, each behind its row."""
        minima = self.progress.advance(name, times)
        return NO_ADVANCES if minima is None else Advances(self._plan.routes.behind(rows), minima)

    def _new_wave(
        self,
        advances: Advances = NO_ADVANCES,
        watermark: int | None = None,
        clock: TimerClock = TimerClock.EVENT,
        drains: bool = False,
    ) -> Wave:
        return Wave(self._plan, advances, clock, watermark, drains, self._replays)

    def _pass(self, wave: Wave, advances: Advances = NO_ADVANCES) -> None:
        """Let a wave pass; `advances` of event time leave the chain with it."""
        self._wave, self._finish = wave, partial(self._leave, advances)
        self.waiting = wave.run()
        if self.waiting is None:
            self._finish(wave)
        elif not self._needs.order:
            self._send(wave)

    def _leave(self, advances: Advances, wave: Wave) -> None:
        """The wave is over: what it has brought to the outbox leaves the chain."""
        self._wave = None
        if not self._needs.order:
            self._send(wave)
            if self._leaves and len(advances.times):
                self.outbox.append(from_microseconds(int(advances.times[-1])))
        elif self._leaves and (wave.outbox or len(advances.times)):
            batches: dict[Input, list[Batch]] = {}
            for through, batch in wave.outbox:
                batches.setdefault(through, []).append(batch)
            self.outbox.append(Leaving([(through, merged(mine)) for through, mine in batches.items()], advances))

    def _send(self, wave: Wave) -> None:
        self.outbox += [Leaving([part]) for part in wave.outbox]
        wave.outbox.clear()

    def _store_state(self, step: InstanceStep) -> None:
        if step.node.kind is NodeKind.SOURCE:
            step.store_state()
            return
        with Blame.of_state(self.graph, step.node.id).blaming():
            step.store_state()


def _next_tick(step: Step) -> datetime | None:
    if isinstance(step, KeyedStep):
        return step.next_due(TimerClock.PROCESSING)
    found = step.next_time(TimerClock.PROCESSING) if isinstance(step, TableStep) else None
    return None if found is None else from_microseconds(found)
