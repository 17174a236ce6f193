"""A walk: how a step with timers, or one that reads the watermark, goes through a batch.

Event time advances between the events of a batch. A step that reads the watermark processes the events up to its next advance at a
time; what timers before it emit comes behind the advance. A step with timers processes the events up to the next advance that a
timer is due at, fires, and goes on; a timer that is set meanwhile may bring that advance nearer. So the results are those of
single events.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from streamwork.components import TimerClock
from streamwork.components.times import from_microseconds, microseconds
from streamwork.engine.steps.emitted import Outputs
from streamwork.engine.steps.keyed_steps import KeyedStep
from streamwork.engine.steps.step import Step
from streamwork.engine.times import RowTimes
from streamwork.flow.batch import Batch, join_outputs
from streamwork.flow.channel import Advances
from streamwork.flow.lineage import NEVER

FIRST_STRETCH = 32
"""Events that a walk processes at a time while any of them may set a timer that ends the stretch; doubled when none has."""


class Walk:
    """One walk of a step through a batch and the advances of a clock between its events."""

    def __init__(
        self, step: Step, batch: Batch | None, advances: Advances, clock: TimerClock, watermark: int | None
    ) -> None:
        """`watermark` is that before the batch."""
        self._step = step
        self._timers = step if isinstance(step, KeyedStep) and step.node.follows_time else None
        self._ttl = step.node.ttl if step.node.ttl_clock is TimerClock.EVENT else None
        self._reads = step.times if isinstance(step.times, RowTimes) else None
        self._batch = batch
        self._clock = clock
        self._moments, self._times = advances
        self._count = 0 if batch is None else len(batch)
        self._at = 0  # the events before this place are processed
        self._next = 0  # the advances before this one have come
        self._limit = FIRST_STRETCH
        moments = None if batch is None else batch.moments
        # How many events come before each advance.
        self._places = self._moments * 0 if moments is None else moments.searchsorted(self._moments, "right")
        self._rises = self._places  # likewise, before each advance of the watermark that the step reads
        self._risen = 0  # the advances of the watermark before this one have come
        if self._reads is not None:
            self._reads.at = watermark
            if clock is not TimerClock.EVENT:
                self._reads = None
            elif moments is not None:
                self._rises = moments.searchsorted(self._moments + step.moment_of_rise, "left")

    def go_on(self, found: list[Outputs] | None = None) -> Outputs:
        """Walk to the end, or until an event or a timer is to be retried."""
        step, count, found = self._step, len(self._times), found or []
        while step.rest is None:
            due = self._due()
            end = self._count if due == count else int(self._places[due])
            if self._reads is not None:
                end = min(end, self._raise(self._reads, due))
            if self._at < end:
                found.append(self._stretch(end, due))
            elif due < count:
                self._next = due + 1
                found.append(self._fire(due))
            else:
                break
        return join_outputs(found)

    def _due(self) -> int:
        """The next advance that a timer is due at. A timer that is set late is due at the next advance."""
        self._next = max(self._next, int(self._places.searchsorted(self._at, "left")))
        timer = None if self._timers is None else self._timers.next_due(self._clock)
        limit = len(self._times)
        if self._ttl is not None and self._clock is TimerClock.EVENT:
            limit = max(self._next, self._expiring_at(self._ttl))
        if timer is None:
            return limit
        return min(limit, max(self._next, int(self._times.searchsorted(microseconds(timer), "left"))))

    def _expiring_at(self, ttl: int) -> int:
        """The first advance at which a key may be forgotten that is touched from here on."""
        following = int(self._places.searchsorted(self._at + 1, "left"))
        if following == len(self._times):
            return following
        return int(self._times.searchsorted(self._times[following] + ttl, "left"))

    def _touched_at(self, end: int) -> list[int]:
        """The next advance of event time behind each event up to `end`; `NEVER` where this walk has none."""
        if self._clock is not TimerClock.EVENT:
            return [NEVER] * (end - self._at)
        following = self._places.searchsorted(np.arange(self._at + 1, end + 1), "left")
        found: list[int] = np.append(self._times, NEVER)[following].tolist()
        return found

    def _raise(self, times: RowTimes, due: int) -> int:
        """Let the step read the watermark of this place. Returns the place where it advances next."""
        count = len(self._times)
        while self._risen < min(due + 1, count) and self._rises[self._risen] <= self._at:
            times.at = int(self._times[self._risen])
            self._risen += 1
        return int(self._rises[self._risen]) if self._risen < count else self._count

    def _stretch(self, end: int, due: int) -> Outputs:
        """Process events up to `end`, or until a timer is set that is due at an earlier advance than `due`."""
        step, timers = self._step, self._timers
        assert self._batch is not None
        if timers is not None and due > self._next and self._clock is TimerClock.EVENT:
            timers.alarm = from_microseconds(int(self._times[due - 1]))
            end = min(end, self._at + self._limit)
        if timers is not None and self._ttl is not None:
            timers.touched_at = self._touched_at(end)
        try:
            outputs = step.process(self._batch[self._at : end])
        finally:
            if timers is not None:
                timers.alarm = None
        if step.rest is not None:
            self._at += step.held_at
            step.rest = self._retry
        elif timers is not None and timers.stopped is not None:
            self._at, self._limit, timers.stopped = self._at + timers.stopped, FIRST_STRETCH, None
        else:
            self._at, self._limit = end, self._limit * 2
        return outputs

    def _retry(self) -> Outputs:
        assert self._batch is not None
        if self._timers is not None and self._ttl is not None:
            self._timers.touched_at = self._touched_at(self._at + 1)
        outputs = self._step.go_on(self._batch[self._at : self._at + 1])
        if self._step.rest is not None:
            self._step.rest = self._retry
            return outputs
        self._at += 1
        return self.go_on([outputs])

    def _fire(self, due: int) -> Outputs:
        timers = self._timers
        assert timers is not None
        outputs = timers.fire(self._clock, from_microseconds(int(self._times[due])))
        if timers.rest is not None:
            timers.rest = partial(self._fire_again, due)
        watermark = int(self._times[due]) if self._clock is TimerClock.EVENT else None
        return timers.fired_at(outputs, int(self._moments[due]), watermark)

    def _fire_again(self, due: int) -> Outputs:
        outputs = self._fire(due)
        return outputs if self._step.rest is not None else self.go_on([outputs])
