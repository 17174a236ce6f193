"""What a component is given to speak through."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from streamwork.components.acknowledging import Acknowledgement, EventFailed
from streamwork.components.schema import in_utc, is_time
from streamwork.components.values import Event
from streamwork.errors import WrongUse

MAIN = "main"


class TimerClock(Enum):
    """Whose time a timer waits for: the watermark of the events, or the ticks of the machine's clock."""

    EVENT = "event"
    PROCESSING = "processing"


class Timer(NamedTuple):
    """A moment that a key waits for."""

    at: datetime
    clock: TimerClock


class Emit(Protocol):
    """Send an event to everything that reads the component's main channel, or another channel that it declares."""

    def __call__(self, event: Event, /, channel: str = MAIN) -> None: ...


class EventCollector:
    """Takes what a component emits: ``emit(event)``, or ``emit(event, "late")`` for a channel that it declares.

    `emit` is the hottest call in the system, so it is the destination's own function and not a method.
    """

    __slots__ = ("emit", "failure", "tracking")

    emit: Emit
    failure: EventFailed | None  # that the component has declared, even if it went on as if nothing were wrong
    tracking: Acknowledgement | None  # under acknowledging: whose event is being applied

    def __init__(self, emit: Callable[..., None]) -> None:
        self.emit = emit
        self.failure = None
        self.tracking = None

    @property
    def event_id(self) -> str:
        """The id of the source event that the event being applied comes from. Only acknowledging gives events an id; each attempt
        at an event has another one.
        """
        if self.tracking is None:
            raise WrongUse(
                "SW-EVENT-ID",
                "events have an id only where they are acknowledged",
                "choose semantics='at-least-once' and tracking='acknowledge', or give your events an id of their own",
            )
        return self.tracking.event_id

    def ack(self, event_id: str | None = None) -> None:
        """This event is done, as far as this component goes; or an earlier one, which had this id.

        Returning from `apply` says the same, unless the component has ``manual_ack = True``. Where events are not acknowledged
        it has no effect.
        """
        if self.tracking is not None:
            self.tracking.ack(event_id)

    def fail(self, reason: str) -> NoReturn:
        """This event has failed. Ends `apply`: nothing of this call counts, and the component's `on_error` decides.

        It raises, so that nothing behind it runs. Where that is caught (``except Exception``), the event has failed all the same.
        """
        self.failure = EventFailed(reason)
        raise self.failure

    def check(self) -> None:
        """For the engine, when a call has returned: raise what was declared in it and caught."""
        if self.failure is not None:
            raise self.failure


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
        if not is_time(at):
            raise ValueError(f"a timer needs a time from year 1 to 9999 in UTC, and {at.isoformat()} is none")
        self.timers.append(Timer(in_utc(at), TimerClock(clock)))
        self.asked = True

    def clear_state(self) -> None:
        """Forget this key, its record and its timers, when the call is over; timers set in the same call stay."""
        self.cleared = self.asked = True

    def fail(self, reason: str) -> NoReturn:
        self.asked = True  # so that the engine looks
        super().fail(reason)

    def forget_wishes(self) -> None:
        """For the engine: what was asked for has been done, or is not to be done."""
        self.timers: list[Timer] = []
        self.asked = self.cleared = False
        self.failure = None
