"""A step of a chain: one component at work in one instance. What all kinds of steps share.

A step processes a batch and gives the batches that go on, by channel. It works through a whole batch before the next step
sees any of it. Along a line this equals event by event, since each step meets the same events in the same order. Where branches
meet, batches are merged by their moments; a step with timers walks through its batch (`engine.steps.walk`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

from streamwork.components import Event, Instance
from streamwork.components.collector import Times
from streamwork.engine.steps.emitted import Emitted, Output, Outputs
from streamwork.engine.steps.failure import applying_failed, error_text
from streamwork.engine.steps.retrying import Tries
from streamwork.errors import JobFailed, StreamworkError, described
from streamwork.flow.acks import Acks
from streamwork.flow.batch import Batch
from streamwork.flow.blame import Blame
from streamwork.flow.lineage import UNTRACKED
from streamwork.job import Node, NodeKind


class Step(ABC):
    """One component at work in one instance. It has a copy of the operator of its own."""

    def __init__(self, node: Node, instance: int, tracked: bool = False) -> None:
        self.node = node
        self.instance = Instance(instance, node.parallelism, node.id)
        self.operator = own_copy(node)
        self.blame = Blame(node.id)  # for its input
        self.times: Times  # the chain gives them
        self.acks: Acks | None = None  # under acknowledging
        self.tries = Tries(node, instance) if node.retry is not None else None
        self.reset()
        self.keeps_lineage = False  # True if the steps behind need the lineage of what it emits
        # where the watermark rises for it, counted from the moment of an advance (`engine.routes`)
        self.moment_of_rise = 0
        self._output = Output(node)
        # Where the job goes on after an error, an event is applied wholly or not at all. Then what it has emitted and kept is
        # checked at once; else that is checked when columns are built, and the job stops.
        self._atomic = node.on_error != "fail" or tracked or node.retry is not None

    @property
    def answers(self) -> bool:
        """True if everything that it emits has been checked."""
        return self._atomic and self._output.checked

    @abstractmethod
    def process(self, batch: Batch) -> Outputs: ...

    @abstractmethod
    def set_up(self) -> None:
        """Called before the first event, when the state has been given."""

    def counters(self) -> dict[str, int]:
        """Each processed event was delivered (it gave something), ended early (it gave nothing), was dropped, became a dead
        letter, or has failed and will be replayed. `replayed` counts events that were replayed, or came from the inbox;
        `retried` counts the retries of events in place, `late` the events on channels for late ones.
        """
        failed = len(self.acks.failed) if self.acks is not None else 0
        lost = self.dropped + len(self.letters) + failed
        return {
            "processed": self.processed,
            "delivered": self.delivered,
            "ended_early": self.processed - self.delivered - lost,
            "dropped": self.dropped,
            "dead_letters": len(self.letters),
            "failed": failed,
            "replayed": self.replayed,
            "retried": self.retried,
            "late": self.late,
        }

    def drain(self) -> Outputs:
        """Before a checkpoint: process what waits, if anything does."""
        return {}

    def count(self, processed: int, left_out: int) -> None:
        """Count the events of a filter that was applied elsewhere: those that it has seen, and those that it has left out."""
        self.processed += processed
        self.delivered += processed - left_out

    def reset(self) -> None:
        self.processed = self.delivered = self.dropped = self.replayed = self.retried = self.late = 0
        # the rest of a batch, to be processed when the pause of `tries` is over
        self.rest: Callable[[], Outputs] | None = None
        self.held_at = 0  # the place of the event that is to be retried, in the batch that was processed last
        self.letters: list[tuple[Any, str]] = []  # events to be kept as dead letters, and why

    def track(self, name: Callable[[int], str]) -> None:
        """Begin an epoch whose events are acknowledged."""
        self.acks = Acks(getattr(self.node.component, "manual_ack", False), name)

    # ---- an event that fails ------------------------------------------------------------------------------------

    def give_up(self, event: Any, root: int, error: Exception) -> bool:
        """Apply `on_error` to a failed event. Raises if that ends the job. True: it is to be retried (`tries`).

        An event that does not fit its type is the responsibility of the component that emitted it.
        """
        if isinstance(event, Event):
            self.blame.check([event])
        if self.tries is not None and self.tries.failed(event, error, error_text(error)):
            if self.acks is not None:
                self.acks.undo()
            return True
        self._end(event, root, error)
        return False

    def _end(self, event: Any, root: int, error: Exception) -> None:
        if self.node.on_error == "fail":
            failed = self.failed(event, error)
            if self.tries is not None:
                failed.cause += self.tries.story
            raise failed from error
        if self.acks is not None:
            self.acks.undo()
        if self.node.on_error == "drop":
            self.dropped += 1
        elif self.acks is not None and root != UNTRACKED:
            self.acks.fail(root, error_text(error))
        else:
            self.letters.append((event, error_text(error)))

    def failed(self, event: Any, error: BaseException, is_one: bool = True) -> StreamworkError:
        """The error of this component while it applies an event."""
        return applying_failed(self.node, self.instance, event, error, is_one)

    def hold(self, batch: Batch, place: int) -> None:
        """Keep the event at this place, which is to be retried, and those behind it."""
        self.rest = partial(self.go_on, batch[place:])
        self.held_at = place
        self.processed -= len(batch) - place  # `process` counts its whole batch

    def go_on(self, batch: Batch) -> Outputs:
        """Retry the first event of a batch; if it succeeds, the others are the rest."""
        assert self.tries is not None
        if self.tries.marks.ended() and (error := self.tries.error) is not None:
            self.tries.over()
            self._end_held(batch.events[0], batch[:1].roots[0], error)
            outputs: Outputs = {}
        else:
            self.retried += 1
            outputs = self.process(batch[:1])
            if self.rest is not None:  # it has failed again
                self.rest = partial(self.go_on, batch)
                return outputs
            self.tries.over()
        if len(batch) > 1:
            self.rest = partial(self.process, batch[1:])
        return outputs

    def _end_held(self, event: Any, root: int, error: Exception) -> None:
        """Apply `then` to an event that waits, without another try."""
        if self.acks is not None:
            self.acks.begin(root)
        self._end(event, root, error)
        self.processed += 1

    # ---- the atomic apply ---------------------------------------------------------------------------------------

    def _emitted(self) -> Emitted:
        return Emitted(self._output, self.keeps_lineage)

    def _each(self, batch: Batch, emitted: Emitted, apply: Callable[[Any], None], undo: Callable[[], None]) -> None:
        """Apply the events one by one, each wholly or not at all: what a failed one has emitted is undone, and `undo` undoes
        the rest.
        """
        acks, count, fits, newest = self.acks, emitted.count, emitted.fits, emitted.first
        so_far = delivered = 0
        roots = batch.roots if acks is not None else repeat(UNTRACKED)
        for place, (event, root) in enumerate(zip(batch.events, roots, strict=False)):
            if acks is not None:
                acks.begin(root)
            try:
                apply(event)
                if (now := count()) != so_far and not (now == so_far + 1 and fits(newest[-1])):
                    emitted.check(so_far)
            except BaseException as error:
                emitted.undo(so_far)
                if self.is_held(event, root, error):
                    self.hold(batch, place)
                    break
                undo()
            else:
                if now != so_far:
                    delivered, so_far = delivered + 1, now
                    if emitted.several:
                        emitted.keep()
            if self.keeps_lineage:
                emitted.came()
        self.delivered += delivered

    def is_held(self, event: Any, root: int, error: BaseException) -> bool:
        """Apply `on_error` to a call that has failed. True: its event is to be retried, and held with those behind it."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        if not isinstance(error, Exception):
            raise self.failed(event, error) from error
        return self.give_up(event, root, error)

    def _guarded_set_up(self, *state: Any) -> None:
        try:
            self.operator.setup_instance(self.instance, *state)
        except (KeyboardInterrupt, StreamworkError):  # the latter has a code, a cause and an action of its own
            raise
        except BaseException as error:
            raise JobFailed(
                "SW-OPERATOR-SETUP",
                f"{self.node.id} (instance {self.instance}) could not be set up: {described(error)}",
                f"fix setup_instance of {self.node.title}, or what it connects to, and start again",
            ) from error


def own_copy(node: Node) -> Any:
    """Instances in one process must not share an object: each may hold temporary data."""
    if node.kind is NodeKind.SINK:
        return None  # the driver has it; here its input is only staged
    try:
        return copy.deepcopy(node.component)
    except Exception as error:
        raise JobFailed(
            "SW-OPERATOR-COPY",
            f"{node.id} cannot be copied, but every instance needs an object of its own: {described(error)}",
            f"open connections and the like in setup_instance of {node.title}, not in its constructor",
            retryable=False,
        ) from error
