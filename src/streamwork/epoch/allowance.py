"""How long an epoch may take before it is abandoned. Pure: the clock and the checks are passed in.

`checkpoint_timeout` counts the time in which no instance waits to retry an event (`engine.steps.retrying`). A stop while one
waits ends the epoch at once: it is abandoned, or, where its input would be lost, the waits are ended and `then` applies.
"""

from __future__ import annotations

from collections.abc import Callable

CHECK_SECONDS = 0.2
"""How often, at most, the waits of instances are checked."""


class Allowance:
    def __init__(
        self,
        limit: float | None,
        monotonic: Callable[[], float],
        waits: Callable[[], bool],
        stopping: Callable[[], bool],
        end_waits: Callable[[], None] | None,
    ) -> None:
        """`waits` is True while an instance waits to retry an event, `stopping` once a stop is requested. Then a stop calls
        `end_waits`; if that is None, the epoch is abandoned.
        """
        self._limit, self._now, self._waits, self._stopping, self._end_waits = (
            limit,
            monotonic,
            waits,
            stopping,
            end_waits,
        )
        self._spent = 0.0  # seconds in which no instance waited
        self._counted = monotonic()  # until when time is counted
        self._checked = float("-inf")
        self._waiting = self._ended = False

    def expired(self) -> bool:
        """True if the epoch is to be abandoned now. To be called often."""
        now = self._now()
        if not self._waiting:
            self._spent += now - self._counted
        self._counted = now
        if now >= self._checked + CHECK_SECONDS:
            self._checked = now
            self._waiting = self._waits()
            if self._waiting and not self._ended and self._stopping():
                if self._end_waits is None:
                    return True
                self._ended = True
                self._end_waits()
        return self._limit is not None and self._spent > self._limit
