"""What a component is given to speak through."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any, Literal, NamedTuple

MAIN = "main"


class TimerClock(Enum):
    """Whose time a timer waits for: the watermark of the events, or the ticks of the machine's clock."""

    EVENT = "event"
    PROCESSING = "processing"


class Timer(NamedTuple):
    """A moment that a key waits for."""

    at: datetime
    clock: TimerClock


class EventCollector:
    """Takes what a component emits: ``emit(event)``, or ``emit(event, "late")`` for a channel that it declares.

    `emit` is the hottest call in the system, so it is the destination's own function and not a method.
    """

    __slots__ = ("emit",)

    emit: Callable[..., None]

    def __init__(self, emit: Callable[..., None]) -> None:
        self.emit = emit


class BatchCollector(EventCollector):
    """What `apply_batch` is given: ``emit_batch(batch)`` takes whole columns, those of the type that is emitted, in any order.

    Batches and single events come out in the order in which they were emitted.
    """

    __slots__ = ("emit_batch",)

    def __init__(self, emit: Callable[..., None], emit_batch: Callable[..., None]) -> None:
        super().__init__(emit)
        self.emit_batch = emit_batch


class KeyedCollector(EventCollector):
    """What a `KeyedOperator` is given: it can also set timers for the key at hand, and forget the key."""

    __slots__ = ("asked", "cleared", "key", "timers")

    key: Any

    def __init__(self, emit: Callable[..., None]) -> None:
        super().__init__(emit)
        self.forget_wishes()

    def set_timer(self, at: datetime, clock: Literal["event", "processing"] = "event") -> None:
        """Call `on_timer` for this key when that clock reaches `at`. Setting the same timer twice is setting it once."""
        if at.tzinfo is None:
            raise ValueError(f"a timer needs a time zone, and {at!r} has none")
        self.timers.append(Timer(at, TimerClock(clock)))
        self.asked = True

    def clear_state(self) -> None:
        """Forget this key, its record and its timers, when the call is over; timers set in the same call stay."""
        self.cleared = self.asked = True

    def forget_wishes(self) -> None:
        """For the engine: what was asked for has been done, or is not to be done."""
        self.timers: list[Timer] = []
        self.asked = self.cleared = False
