"""Retrying an event in place: `on_error=Retry(...)` of an operator.

    1  fail      `apply` raises. Nothing of the call counts (state, outputs, acknowledgements), as with any `on_error`
    2  pause     the policy says how long (`job.retry`). The step keeps the event and those behind it (`Step.rest`), a mark says
                 so (`delivery.retrying`), and the chain is suspended: what comes later is deferred, in order (`Chain.waiting`)
    3  wait      no thread sleeps in the engine: the executor has nothing to do until the pause is over (`Executor.choices`).
                 `local`: the engine goes on with other instances, and waits by its clock when there is none.
                 Spark: the task waits, and a heartbeat rewrites the mark, also during the next try
    4  again     the event alone is applied again. If it raises: 1. If not, the mark is removed, then the events behind it follow,
                 then what was deferred. So results are those of a run in which nothing failed
    5  then      the policy gives up: the mark is removed, and the event is failed, dropped or set aside, as `then` says

Meanwhile, in the driver (`epoch.allowance`): while a fresh mark is there, `checkpoint_timeout` stands still. The checkpoint waits,
as for any event that takes long; sinks commit the epoch before. A stop cancels the epoch: no manifest names what it has done, and
the next start reads the same slice again. Under at-most-once that slice would be lost, so the driver asks for the end of all
waits instead, and 5 follows at once for what waits and, without a pause, for what fails later in that epoch.

What a crash leaves: at any of these steps an epoch that is not prepared, as during compute (`epoch.driver`), and perhaps a mark of
a fence that is over, which the next start removes.
"""

from __future__ import annotations

from typing import Any

from streamwork.components.field_types import show
from streamwork.delivery.retrying import Mark, Marks
from streamwork.job import Node

MOST_TEXT = 300  # characters of an event or an error in a mark


class Tries:
    """The tries of one component's instance at one event or timer after another."""

    def __init__(self, node: Node, instance: int) -> None:
        assert node.retry is not None
        self.marks: Marks  # of the epoch under way
        self.error: Exception | None = None  # of the last failure, while something waits
        self.story = ""  # of the event that was given up last, for its error
        self._policy, self._node, self._instance = node.retry, node, instance
        self._failures = 0
        self._first = self._until = self._since = 0.0

    def begin(self, marks: Marks) -> None:
        """An epoch begins."""
        self.marks = marks
        self.error = None
        self._failures = 0

    def failed(self, event: Any, error: Exception, text: str) -> bool:
        """An event or timer has failed. True: it is to be retried, when `is_due`. False: the policy gives up."""
        clock = self.marks.clock
        now = clock.monotonic()
        if not self._failures:
            self._first, self._since = now, clock.now()
        self._failures += 1
        pause = self._policy.pause(self._failures, now - self._first)
        if pause is None or getattr(error, "retryable", True) is False or self.marks.ended():
            self.story = f"; retries did not help ({self._policy})" if self._failures > 1 else ""
            self.over()
            return False
        self.error, self._until = error, now + pause
        policy, marks = self._policy, self.marks
        marks.put(
            Mark(
                self._node.id,
                self._instance,
                marks.epoch,
                marks.fence,
                show(event)[:MOST_TEXT],
                text[:MOST_TEXT],
                self._failures,
                policy.times,
                policy.limit,
                self._node.on_error,
                self._since,
                clock.now() + pause,
            )
        )
        return True

    @property
    def until(self) -> float:
        """When it is retried, by the monotonic clock."""
        return self._until

    def is_due(self) -> bool:
        """True if it is to be retried now, or to be given up without another try."""
        return self.marks.clock.monotonic() >= self._until or self.marks.ended()

    def over(self) -> None:
        """The event is done, or given up."""
        if self._failures > 0 and self.error is not None:
            self.marks.remove(self._node.id, self._instance)
        self.error, self._failures = None, 0
