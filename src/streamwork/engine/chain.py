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
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from streamwork.components import KeyedOperator, Slice, TimerClock
from streamwork.components.collector import MAIN
from streamwork.components.columns import Columns, as_events, check_types
from streamwork.engine.batch_steps import BatchStep, InstanceBatchStep, KeyedBatchStep, OperatorBatchStep
from streamwork.engine.staging import Staging
from streamwork.engine.steps import (
    Given,
    InstanceStep,
    KeyedStep,
    OperatorStep,
    Outputs,
    SourceStep,
    StageStep,
    Step,
)
from streamwork.job import Graph, Input, Node, NodeKind
from streamwork.state import State

_log = logging.getLogger(__name__)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Chain:
    """Lives in one process, from epoch to epoch; after an error it is thrown away and a fresh one is set up."""

    def __init__(
        self, graph: Graph, nodes: Iterable[str] | None = None, instance: int = 0, one_by_one: bool = False
    ) -> None:
        """`one_by_one` is needed where `Layout.interleaves`."""
        mine = set(nodes) if nodes is not None else {node.id for node in graph.nodes}
        self.graph = graph
        self.instance = instance
        self.nodes = tuple(node for node in graph.nodes if node.id in mine)
        # What goes through an exchange to other chains, in order: events, and how far event time has come between them.
        self.outbox: list[tuple[Input, Given] | datetime] = []
        self._steps = {node.id: _step(node, instance) for node in self.nodes if node.kind is not NodeKind.SOURCE}
        sources = [node.id for node in self.nodes if node.kind is NodeKind.SOURCE]
        self._sources = {name: {"processed": 0, "delivered": 0, "dropped": 0} for name in sources}
        self.polled = {node.id: SourceStep(node, instance) for node in self.nodes if node in graph.polled}
        self._followers: dict[Input, list[Step]] = {}
        for step in self._steps.values():
            for one in step.node.inputs:
                if one.node in mine:
                    self._followers.setdefault(one, []).append(step)
        self._emitted = {one: graph[one.node].emits(one.channel) for node in graph.nodes for one in node.inputs}
        self._leaving = {one for node in graph.nodes if node.id not in mine for one in node.inputs if one.node in mine}
        self._timed = [s for s in self._steps.values() if isinstance(s, KeyedStep) and s.operator.uses_timers]
        self._one_by_one = one_by_one or bool(self._timed) or any(len(node.inputs) > 1 for node in self.nodes)
        for step in self._steps.values():
            if isinstance(step, BatchStep) and self._one_by_one:
                step.rows = 1
        self._times = {node.id: node.time for node in self.nodes if node.time is not None}
        self.watermarks: dict[str, datetime | None] = {}  # of every input that event time comes from
        self._is_set_up = False

    # ---- an epoch -----------------------------------------------------------------------------------------------

    def open(self, states: Mapping[str, State], stagings: Mapping[str, Staging]) -> None:
        """Begin an epoch with these states and these places for outputs."""
        working = {**self._steps, **self.polled}
        for name, step in working.items():
            step.reset()
            if isinstance(step, KeyedStep | InstanceStep):
                if step.node.keeps is not None:
                    step.state = states[name]
                if isinstance(step, KeyedStep):
                    step.use_state()
            elif isinstance(step, StageStep):
                step.staging = stagings[name]
        for counters in self._sources.values():
            counters.update(processed=0, delivered=0, dropped=0)
        for step in working.values():
            stale = isinstance(step, InstanceStep) and step.node.keeps is not None and step.is_stale
            if not self._is_set_up or stale:
                step.set_up()
        self._is_set_up = True

    def tick(self, now: datetime) -> None:
        """Processing time has come to `now`."""
        for step in self._timed:
            self._pass_on(step.node.id, step.fire(TimerClock.PROCESSING, now))

    def process(self, source: str, partition: str, piece: Slice) -> None:
        counters, count = self._sources[source], len(piece.given)
        came = count + sum(piece.left_out.values())
        counters["processed"] += came + piece.dropped
        counters["delivered"] += came
        counters["dropped"] += piece.dropped
        behind = source
        for behind, left_out in piece.left_out.items():
            self._steps[behind].count(came, left_out)
            came -= left_out
        time = self._times.get(source)
        if not self._one_by_one:
            self._pass_on(behind, {MAIN: piece.given})
            if time is not None and count:
                self._advance(f"{source}/{partition}", _latest(piece.given, time))
            return
        for event in piece.events:
            self._pass_on(behind, {MAIN: [event]})
            if time is not None:
                self._advance(f"{source}/{partition}", getattr(event, time))

    def take(self, to: str, given: Given) -> None:
        """Events that came through an exchange, for one component of this chain."""
        step = self._steps[to]
        for piece in [[event] for event in as_events(given)] if self._one_by_one else [given]:
            self._pass_on(to, step.process(piece if step.takes_columns else as_events(piece)))

    def take_watermark(self, name: str, watermark: datetime) -> None:
        """An input of an exchange has come so far."""
        self._advance(name, watermark)

    def drain(self) -> None:
        """Before a checkpoint: nothing waits any more."""
        for name, step in self._steps.items():
            if isinstance(step, BatchStep):
                self._pass_on(name, step.drain())

    def checkpoint(self) -> dict[str, dict[str, int]]:
        """Between two events: states are up to date now. Counters of every component, the stateless ones too."""
        for step in (*self._steps.values(), *self.polled.values()):
            if isinstance(step, InstanceStep) and step.node.keeps is not None:
                step.take_state()
        counted = {name: dict(counters) for name, counters in self._sources.items()}
        counted.update((name, step.counters()) for name, step in self._steps.items())
        return counted

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
        before = self.watermarks.get(name)
        if before is not None and time <= before:
            return
        self.watermarks[name] = time
        now = self.watermark
        if now is not None:
            for step in self._timed:
                self._pass_on(step.node.id, step.fire(TimerClock.EVENT, now))
            if self._leaving:
                self.outbox.append(now)

    def _pass_on(self, from_id: str, outputs: Outputs) -> None:
        for channel, events in outputs.items():
            if events:
                through = Input(from_id, channel)
                leaves, followers = through in self._leaving, self._followers.get(through, ())
                if (leaves or followers) and through.node in self._steps and not isinstance(events, Columns):
                    check_types(self._emitted[through], events, str(through))
                if leaves:
                    self.outbox.append((through, events))
                for step in followers:
                    self._pass_on(step.node.id, step.process(events if step.takes_columns else as_events(events)))


def _step(node: Node, instance: int) -> Step:
    if node.kind is NodeKind.SINK:
        return StageStep(node, instance)
    batches = hasattr(node.component, "apply_batch")
    kind: type[Step] = OperatorBatchStep if batches else OperatorStep
    if isinstance(node.component, KeyedOperator):
        kind = KeyedBatchStep if batches else KeyedStep
    elif node.keeps is not None:
        kind = InstanceBatchStep if batches else InstanceStep
    return kind(node, instance)


def _latest(given: Given, time: str) -> datetime:
    """The largest value of a field of times."""
    return given.latest(time) if isinstance(given, Columns) else max(getattr(event, time) for event in given)


def microseconds(at: datetime) -> int:
    """Whole microseconds since 1970, as files hold times."""
    return (at - EPOCH) // timedelta(microseconds=1)


def from_microseconds(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)
