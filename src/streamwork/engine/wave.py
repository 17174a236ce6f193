"""A wave: one passage of some batches through the steps of a chain.

1. Batches arrive at the inboxes of the first steps.
2. The steps run in the order of the graph. Each processes its inbox; what it emits goes to the inboxes of its successors, or into
   the outbox. A step at which moments are needed (`engine.routes`) runs once, when all steps before it are done: its batches are
   merged, and its timers fire between their events. So does the step of a table operator, with the batches of each port.
3. If a step has an event to be retried, the steps behind it run on as far as they do not need the rest. The wave is over when
   the rest has passed too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamwork.components import Event, TimerClock
from streamwork.components.columns import Columns, check_types
from streamwork.engine.routes import OUTBOX, Routes, To
from streamwork.engine.steps.emitted import Outputs
from streamwork.engine.steps.keyed_steps import KeyedStep
from streamwork.engine.steps.step import Step
from streamwork.engine.steps.table_step import TableStep
from streamwork.engine.steps.walk import Walk
from streamwork.errors import StreamworkError
from streamwork.flow.batch import Batch, joined, merged
from streamwork.flow.blame import Blame
from streamwork.flow.channel import NO_ADVANCES, Advances
from streamwork.flow.lineage import count_replayed
from streamwork.job import Graph, Input


class Plan(NamedTuple):
    """How batches pass through a chain: the same for all waves."""

    graph: Graph
    steps: Mapping[str, Step]  # in the order of the graph
    routes: Routes
    gathering: frozenset[str]  # steps that run once in a wave
    walking: frozenset[str]  # steps with timers, or that read the watermark
    unchecked: Mapping[Input, type[Event] | None]  # what is to be checked for its type, and which it should have


class Leaving(NamedTuple):
    """What leaves a chain through exchanges, and how event time advances between its events."""

    parts: Sequence[tuple[Input, Batch]]
    advances: Advances = NO_ADVANCES


class Wave:
    def __init__(
        self,
        plan: Plan,
        advances: Advances = NO_ADVANCES,
        clock: TimerClock = TimerClock.EVENT,
        watermark: int | None = None,
        drains: bool = False,
        counts_replays: bool = False,
    ) -> None:
        """`advances` of a clock happen between the events of the wave; `watermark` is that before it. If it `drains`, each step
        processes what waits there.
        """
        self._plan = plan
        self._advances = advances
        self._clock = clock
        self._watermark = watermark
        self._drains = drains
        self._counts_replays = counts_replays
        self._inboxes: dict[To, list[Batch]] = {}
        self._done: set[str] = set()  # of the steps that run once
        self._drained: set[str] = set()
        self._rests: list[Step] = []  # steps with an event to be retried, in the order of the graph
        self.outbox: list[tuple[Input, Batch]] = []

    def arrive(self, at: To, batch: Batch) -> None:
        """A batch for a port of a step."""
        if len(batch):
            self._inboxes.setdefault(at, []).append(batch)

    def deliver(self, by: str, outputs: Outputs) -> None:
        """What a source or step has emitted, to its successors."""
        routes = self._plan.routes
        for channel, batch in outputs.items():
            if not len(batch):
                continue
            through = Input(by, channel)
            if through in self._plan.unchecked and not isinstance(batch.given, Columns):
                self._check(through, batch)
            for edge in routes.edges.get(through, ()):
                moved = routes.along(edge, batch)
                if edge.to.step == OUTBOX:
                    self.outbox.append((through, moved))
                else:
                    self.arrive(edge.to, moved)

    def run(self) -> Step | None:
        """Go on as far as possible. Returns the step whose event waits to be retried, or None when the wave is over."""
        while True:
            for name, step in self._plan.steps.items():
                if step not in self._rests:
                    self._run(name, step)
            if not self._rests:
                return None
            if self._is_waiting(self._rests[-1]):
                return self._rests[-1]
            self._go_on()

    def resume(self) -> Step | None:
        """Retry the event that waits, and go on. Returns what `run` does."""
        self._go_on()
        return self.run()

    def _go_on(self) -> None:
        step = self._rests.pop()  # the last step first: its events are the oldest
        rest, step.rest = step.rest, None
        assert rest is not None
        self._deliver(step, rest())

    def _is_waiting(self, step: Step) -> bool:
        assert step.tries is not None
        return step.tries.error is not None

    def _run(self, name: str, step: Step) -> None:
        if name in self._plan.gathering:
            if name not in self._done and not self._is_blocked():
                self._done.add(name)
                self._run_once(name, step)
        else:
            inbox = self._inboxes.get(To(name))
            while inbox and step.rest is None:
                self._deliver(step, self._processed(step, inbox.pop(0)))
        if self._drains and name not in self._drained and not self._is_blocked():
            self._drained.add(name)
            if isinstance(step, TableStep):
                step.see(self._watermark)
            self._deliver(step, step.drain())

    def _run_once(self, name: str, step: Step) -> None:
        if isinstance(step, TableStep):
            self._run_table(name, step)
            return
        inbox = self._inboxes.pop(To(name), None)
        batch = merged(inbox) if inbox else None
        if name in self._plan.walking and (batch is not None or len(self._advances.times)):
            if batch is not None:
                self._count(step, batch)
            if isinstance(step, KeyedStep) and len(self._advances.times):
                step.until = int(self._advances.times[-1])
            walk = Walk(step, batch, self._advances, self._clock, self._watermark)
            self._deliver(step, walk.go_on())
        elif batch is not None:
            self._deliver(step, self._processed(step, batch))

    def _run_table(self, name: str, step: TableStep) -> None:
        arrived = []
        for port in step.node.ports:
            if inbox := self._inboxes.pop(To(name, port.name), None):
                batch = joined(inbox) if inbox[0].moments is None else merged(inbox)
                self._count(step, batch)
                arrived.append((port.name, batch))
        if arrived or (len(self._advances.times) and step.follows(self._clock)):
            self._deliver(step, step.pass_wave(arrived, self._advances, self._clock, self._watermark))

    def _is_blocked(self) -> bool:
        """True while a step has a rest, which steps that run once wait for."""
        return bool(self._rests)

    def _deliver(self, step: Step, outputs: Outputs) -> None:
        self.deliver(step.node.id, outputs)
        if step.rest is not None and step not in self._rests:
            self._rests.append(step)

    def _processed(self, step: Step, batch: Batch) -> Outputs:
        self._count(step, batch)
        return step.process(batch)

    def _count(self, step: Step, batch: Batch) -> None:
        if self._counts_replays and batch.lineage is not None and batch.lineage.roots is not None:
            step.replayed += count_replayed(batch.lineage.roots)

    def _check(self, through: Input, batch: Batch) -> None:
        """Check that events are of the declared type. Their values are checked later, in columns."""
        try:
            check_types(self._plan.unchecked[through], batch.events, str(through))
        except StreamworkError as error:
            Blame.of(self._plan.graph, [through]).put_on(error)
            raise
