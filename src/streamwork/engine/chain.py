"""A chain: the steps between two exchanges, run by one instance. The only executor of operators there is.

    open(...)                 every instance is set up, with its state, before the first event
    tick(now)                 processing time goes on
    process(source, ...)      events of one source partition, in offset order
    take(to, ...)             events that come through an exchange
    checkpoint()              the state is ready to be written; what the steps counted

Results must not depend on how input is cut into lists. Along a line of steps they do not. Where branches of a stream meet again
inside the chain, or timers fire between events, the chain feeds its steps one event at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from streamwork.components import KeyedOperator, Slice, TimerClock
from streamwork.components.collector import MAIN
from streamwork.components.columns import Columns, check_types
from streamwork.components.operator import reads_watermark
from streamwork.components.schema import in_utc
from streamwork.delivery.retrying import Marks
from streamwork.engine.adaptive_batch import AdaptiveBatch
from streamwork.engine.steps.batch_steps import BatchStep, InstanceBatchStep, KeyedBatchStep, OperatorBatchStep
from streamwork.engine.steps.key_check import KeyCheck
from streamwork.engine.steps.operator_steps import InstanceStep, KeyedStep, OperatorStep, SourceStep
from streamwork.engine.steps.sink_steps import StageStep, WriteStep
from streamwork.engine.steps.staging import Staging
from streamwork.engine.steps.step import Given, Outputs, Step
from streamwork.errors import StreamworkError, WrongUse
from streamwork.flow.blame import Blame
from streamwork.flow.lineage import (
    UNTRACKED,
    Following,
    Mark,
    Tracked,
    came_again,
    one_by_one,
    root_of,
    roots_of,
    with_marks,
)
from streamwork.flow.origins import NONE, origins_of
from streamwork.flow.times import from_microseconds
from streamwork.job import Graph, Input, Node, NodeKind
from streamwork.state import State

_log = logging.getLogger(__name__)


class Chain:
    """Lives in one process, from epoch to epoch; after an error it is thrown away and a fresh one is set up."""

    def __init__(
        self,
        graph: Graph,
        nodes: Iterable[str] | None = None,
        instance: int = 0,
        one_by_one: bool = False,
        rotates: bool = False,
    ) -> None:
        """`one_by_one` is needed where `Layout.interleaves`, `rotates` where `Layout.rotates`."""
        mine = set(nodes) if nodes is not None else {node.id for node in graph.nodes}
        self.graph = graph
        self.instance = instance
        self._tracked = graph.promise.acknowledges
        self._rotates = rotates
        self.nodes = tuple(node for node in graph.nodes if node.id in mine)
        # What goes through an exchange to other chains, in order: events, and how far event time has come between them.
        self.outbox: list[tuple[Input, Given] | datetime] = []
        self._steps = {node.id: _step(graph, node, instance) for node in self.nodes if node.kind is not NodeKind.SOURCE}
        sources = [node.id for node in self.nodes if node.kind is NodeKind.SOURCE]
        self._sources = {name: _SourceCount() for name in sources}
        for step in self._steps.values():
            step.blame = Blame.of(graph, step.node.inputs)
            step.marked = self._tracked or rotates
        self._replays = False  # under acknowledging: True if events of earlier epochs are among those of this one
        self._lanes: dict[str, int] = {}  # under acknowledging: the number of each source partition in this epoch
        self.polled = {node.id: SourceStep(node, instance) for node in self.nodes if node in graph.polled}
        self._followers: dict[Input, list[Step]] = {}
        for step in self._steps.values():
            for one in step.node.inputs:
                if one.node in mine:
                    self._followers.setdefault(one, []).append(step)
        self._unchecked = {
            one: graph[one.node].emits(one.channel)
            for node in graph.nodes
            for one in node.inputs
            if one.node in self._steps and not self._steps[one.node].answers
        }
        self._leaving = {one for node in graph.nodes if node.id not in mine for one in node.inputs if one.node in mine}
        self._timed = [s for s in self._steps.values() if isinstance(s, KeyedStep) and s.operator.uses_timers]
        self._one_by_one = one_by_one or bool(self._timed) or any(len(node.inputs) > 1 for node in self.nodes)
        for step in self._steps.values():
            if isinstance(step, BatchStep) and (self._one_by_one or graph.previews):
                step.rows = 1
        self.pace: AdaptiveBatch | None = None  # where rows are to be seen early
        self._times = {node.id: node.time for node in self.nodes if node.time is not None}
        self.watermarks: dict[str, datetime | None] = {}  # of every input that event time comes from
        self.now = from_microseconds(0)  # processing time of the epoch under way
        for step in (*self._steps.values(), *self.polled.values()):
            reads = step.node.kind is NodeKind.SOURCE or reads_watermark(step.node.component)
            step.times = self if reads else _WithoutWatermark(self, step.node)
        self._is_set_up = False
        self.waiting: Step | None = None
        """The step whose event waits to be tried again (`engine.steps.retrying`). Meanwhile everything is deferred."""
        self._deferred: list[Callable[[], None]] = []

    # ---- an epoch -----------------------------------------------------------------------------------------------

    def open(
        self,
        states: Mapping[str, State],
        stagings: Mapping[str, Staging],
        claim: Callable[[str], bool] = lambda sink: True,
        marks: Marks | None = None,
    ) -> None:
        """Begin an epoch with these states and these places for outputs. `claim` tells whether a sink may be written to; `marks`
        says what waits to be tried again.
        """
        working = {**self._steps, **self.polled}
        for name, step in working.items():
            step.reset()
            if step.tries is not None:
                assert marks is not None, "a step that retries needs a clock"
                step.tries.begin(marks)
            if isinstance(step, KeyedStep | InstanceStep):
                if step.node.keeps is not None:
                    step.state = states[name]
                if isinstance(step, KeyedStep):
                    step.use_state()
            elif isinstance(step, StageStep):
                step.staging = stagings[name]
            elif isinstance(step, WriteStep):
                step.claim = partial(claim, name)
        self._sources = {name: _SourceCount() for name in self._sources}
        for step in working.values():
            stale = isinstance(step, InstanceStep) and step.node.keeps is not None and step.is_stale
            if not self._is_set_up or stale:
                step.set_up()
        self._is_set_up = True

    def check_keys(self, groups: int) -> None:
        """Check that keys which reach a step without an exchange belong to this instance."""
        for step in self._steps.values():
            fused = all(one.node in self._steps or one.node in self._sources for one in step.node.inputs)
            if isinstance(step, KeyedStep) and step.node.parallelism > 1 and fused:
                step.check_keys = KeyCheck(self.graph, step.node, self.instance, groups)

    def follow(self, lanes: dict[str, int], name: Callable[[int], str], replays: bool) -> None:
        """The events of this epoch are acknowledged: `lanes` numbers the source partitions, `name` gives a root its id. `replays`:
        some of them come again.
        """
        self._lanes, self._replays = dict(lanes), replays
        for step in self._steps.values():
            step.follow(name)

    def tick(self, now: datetime) -> None:
        """Processing time has come to `now`."""
        self.now = now
        for step in self._timed:
            self._run(step, partial(step.fire, TimerClock.PROCESSING, now))

    def process(self, source: str, partition: str, piece: Slice) -> None:
        counted, count = self._sources[source], len(piece.given)
        came = count + sum(piece.left_out.values())
        counted.delivered += came
        counted.dropped += piece.dropped
        counted.letters += piece.letters
        behind, given = source, self._marked(source, partition, piece)
        for behind, left_out in piece.left_out.items():
            self._steps[behind].count(came, left_out)
            came -= left_out
        time = self._times.get(source)
        if not self._one_by_one:
            self._pass_on(behind, {MAIN: given})
            if time is not None and count:
                self._advance(f"{source}/{partition}", _latest(given, time))
            return
        for one in one_by_one(given):
            self._pass_on(behind, {MAIN: one})
            if time is not None:
                self._advance(f"{source}/{partition}", in_utc(getattr(one[0], time)))

    def _marked(self, source: str, partition: str, piece: Slice) -> Given:
        """The events of a slice, and where each comes from as far as somebody wants to know."""
        count, origins = len(piece.given), None
        if self._rotates and count:
            origins = origins_of(source, partition, piece.offsets)
        if self._tracked:
            read = self._sources[source].read
            first = root_of(self._lanes[f"{source}/{partition}"], read.get(partition, 0))
            read[partition] = read.get(partition, 0) + count
            known = [NONE] * count if origins is None else origins.tolist()
            return Tracked(piece.events, map(Mark, range(first, first + count), known))
        if origins is None:
            return piece.given
        if isinstance(piece.given, Columns):
            return Columns(piece.given.kind, piece.given.batch, origins)
        return Tracked(piece.given, (Mark(UNTRACKED, origin) for origin in origins.tolist()))

    def replay(self, to: str, events: list[Any]) -> None:
        """Events that come again, or out of the inbox: to the component that could not do them, or once more from their source.
        Event time stays where it is.
        """
        if to in self._sources:
            counted = self._sources[to]
            counted.delivered += len(events)
            counted.replayed += len(events)
            for one in one_by_one(events) if self._one_by_one else [events]:
                self._pass_on(to, {MAIN: one})
        else:  # out of the inbox: they have no root
            self._steps[to].replayed += len(events)
            self.take(to, events)

    def take(self, to: str, given: Given) -> None:
        """Events that came through an exchange, for one component of this chain."""
        step = self._steps[to]
        pieces: Iterable[Given] = [given] if self.pace is None else self.pace.cut(given)
        for piece in one_by_one(given) if self._one_by_one else pieces:
            self._feed(step, piece)

    def take_watermark(self, name: str, watermark: datetime) -> None:
        """An input of an exchange has come so far."""
        self._advance(name, watermark)

    def drain(self) -> None:
        """Before a checkpoint: nothing waits any more."""
        for step in self._steps.values():
            self._run(step, step.drain)

    def resume(self) -> None:
        """Try the event that waits again, and go on with what was deferred. To be called when `waiting.tries.is_due()`."""
        self.waiting, deferred = None, self._deferred
        self._deferred = []
        for number, act in enumerate(deferred):
            act()
            if self._deferred:  # what `act` has left to do comes before what follows it
                self._deferred += deferred[number + 1 :]
                return

    def checkpoint(self) -> dict[str, dict[str, int]]:
        """Between two events: states are up to date now. Counters of every component, the stateless ones too."""
        for step in (*self._steps.values(), *self.polled.values()):
            if isinstance(step, InstanceStep) and step.node.keeps is not None:
                self._take_state(step)
        return self.counters()

    def counters(self) -> dict[str, dict[str, int]]:
        """What every component has counted so far in this epoch."""
        counted = {name: source.counters() for name, source in self._sources.items()}
        counted.update((name, step.counters()) for name, step in self._steps.items())
        return counted

    def letters(self) -> dict[str, list[tuple[Any, str]]]:
        """What is to be kept as dead letters, and why, by component. What a source could not read is text."""
        found: dict[str, list[tuple[Any, str]]] = {name: list(source.letters) for name, source in self._sources.items()}
        found.update((name, step.letters) for name, step in self._steps.items())
        return {name: letters for name, letters in found.items() if letters}

    def following(self, component: str) -> Following | None:
        """What a component has said of the events that it was given."""
        step = self._steps.get(component)
        return step.following if step is not None else None

    def next_tick(self) -> datetime | None:
        """When processing time is next waited for."""
        waiting = [step.state.next_timer(TimerClock.PROCESSING) for step in self._timed]
        return min((at for at in waiting if at is not None), default=None)

    def close(self) -> None:
        for step in (*self._steps.values(), *self.polled.values()):
            if step.node.kind is not NodeKind.SINK:
                try:
                    step.operator.close()
                except Exception:
                    _log.warning("closing %s raised", step.node.id, exc_info=True)  # what was done is done

    # ---- inside -------------------------------------------------------------------------------------------------

    @property
    def watermark(self) -> datetime | None:
        """How far event time has come in all inputs; None while one of them has not spoken."""
        if not self.watermarks or any(at is None for at in self.watermarks.values()):
            return None
        return min(at for at in self.watermarks.values() if at is not None)

    def _advance(self, name: str, time: datetime) -> None:
        """One input's event time has come to `time`; fire what all inputs have passed."""
        if self.waiting is not None:
            self._deferred.append(partial(self._advance, name, time))
            return
        before = self.watermarks.get(name)
        if before is not None and time <= before:
            return
        self.watermarks[name] = time
        now = self.watermark
        if now is not None:
            for step in self._timed:
                self._run(step, partial(step.fire, TimerClock.EVENT, now))
            if self._leaving:
                self._leave(now)

    def _pass_on(self, from_id: str, outputs: Outputs) -> None:
        for channel, events in outputs.items():
            if events:
                through = Input(from_id, channel)
                leaves, followers = through in self._leaving, self._followers.get(through, ())
                if through in self._unchecked and not isinstance(events, Columns):
                    self._check(through, events)
                if leaves:
                    self._leave((through, events))
                for step in followers:
                    self._feed(step, events)

    def _leave(self, entry: tuple[Input, Given] | datetime) -> None:
        if self.waiting is None:
            self.outbox.append(entry)
        else:
            self._deferred.append(partial(self._leave, entry))

    def _feed(self, step: Step, given: Given) -> None:
        if self.waiting is not None:
            self._deferred.append(partial(self._feed, step, given))
            return
        self._pass_on(step.node.id, self._process(step, given))
        if step.rest is not None:
            self._suspend(step)

    def _run(self, step: Step, act: Callable[[], Outputs]) -> None:
        """Let a step do something, and pass on what that gives."""
        if self.waiting is not None:
            self._deferred.append(partial(self._run, step, act))
            return
        self._pass_on(step.node.id, act())
        if step.rest is not None:
            self._suspend(step)

    def _suspend(self, step: Step) -> None:
        """A step has something left to do: what it has given so far is on its way, the rest follows it.

        If a step behind it waits, the rest waits for that; if its own event does, the chain waits for its pause; else the rest is
        done now.
        """
        rest, step.rest = step.rest, None
        assert rest is not None and step.tries is not None
        if self.waiting is None and step.tries.error is not None:
            self.waiting = step
        self._again(step, rest)

    def _again(self, step: Step, rest: Callable[[], Outputs]) -> None:
        assert step.tries is not None
        if self.waiting is None and step.tries.error is not None and not step.tries.is_due():
            self.waiting = step
        if self.waiting is not None:
            self._deferred.append(partial(self._again, step, rest))
            return
        self._pass_on(step.node.id, rest())
        if step.rest is not None:
            self._suspend(step)

    def _process(self, step: Step, given: Given) -> Outputs:
        if self._replays and isinstance(given, Tracked):
            step.replayed += came_again(roots_of(given))
        return step.process(given if step.takes_columns else with_marks(given))

    def _take_state(self, step: InstanceStep) -> None:
        if step.node.kind is NodeKind.SOURCE:
            step.take_state()
            return
        with Blame.of_state(self.graph, step.node.id).taken():
            step.take_state()

    def _check(self, through: Input, events: Given) -> None:
        """That they are of the declared type. Of their values columns tell, later."""
        assert isinstance(events, list)
        try:
            check_types(self._unchecked[through], events, str(through))
        except StreamworkError as error:
            Blame.of(self.graph, [through]).put_on(error)
            raise


class _WithoutWatermark:
    """The times of a step that takes whole batches: the watermark within a batch is not known."""

    def __init__(self, chain: Chain, node: Node) -> None:
        self._chain = chain
        self._node = node

    @property
    def now(self) -> datetime:
        return self._chain.now

    @property
    def watermark(self) -> datetime | None:
        raise WrongUse(
            "SW-OPERATOR-WATERMARK",
            f"{self._node.id} reads collector.watermark, but no method of {self._node.title} shows it, so events come in batches",
            f"declare reads_watermark = True in class {self._node.title}",
        )


@dataclass
class _SourceCount:
    """What a source has given in one epoch."""

    delivered: int = 0
    dropped: int = 0
    replayed: int = 0
    letters: list[tuple[str, str]] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)  # under acknowledging: events of each partition so far

    def counters(self) -> dict[str, int]:
        return {
            "processed": self.delivered + self.dropped + len(self.letters),
            "delivered": self.delivered,
            "ended_early": 0,
            "dropped": self.dropped,
            "dead_letters": len(self.letters),
            "failed": 0,
            "replayed": self.replayed,
            "retried": 0,
        }


def _step(graph: Graph, node: Node, instance: int) -> Step:
    promise = graph.promise
    if node.kind is NodeKind.SINK:
        return StageStep(node, instance) if graph.stages(node) else WriteStep(node, instance, promise.acknowledges)
    batches = hasattr(node.component, "apply_batch")
    kind: type[Step] = OperatorBatchStep if batches else OperatorStep
    if isinstance(node.component, KeyedOperator):
        kind = KeyedBatchStep if batches else KeyedStep
    elif node.keeps is not None:
        kind = InstanceBatchStep if batches else InstanceStep
    return kind(node, instance, promise.acknowledges)


def _latest(given: Given, time: str) -> datetime:
    """The largest value of a field of times."""
    return given.latest(time) if isinstance(given, Columns) else max(in_utc(getattr(event, time)) for event in given)
