"""Collectors: what a component gets to emit events with, and to ask for the time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from streamwork.components.acknowledging import Acknowledgement, EventFailed
from streamwork.components.field_types import in_utc, is_time
from streamwork.components.values import Event
from streamwork.errors import WrongUse

MAIN = "main"


class TimerClock(Enum):
    """The clock of a timer: the watermark of the events, or processing time. `TTL` marks the time at which a key is forgotten, by
    the clock of its operator (`ttl_clock`).
    """

    EVENT = "event"
    PROCESSING = "processing"
    TTL = "ttl"


class Timer(NamedTuple):
    """A time at which `on_timer` is called for a key."""

    at: datetime
    clock: TimerClock


class Times(Protocol):
    """The times that one instance is at."""

    @property
    def now(self) -> datetime: ...

    @property
    def watermark(self) -> datetime | None: ...

    @property
    def checkpoint(self) -> int: ...


class Emit(Protocol):
    """Send an event to everything that reads the component's main channel, or another channel that it declares."""

    def __call__(self, event: Event, /, channel: str = MAIN) -> None: ...


class EventCollector:
    """Takes what a component emits: ``emit(event)``, or ``emit(event, "late")`` for a channel that it declares.

    `emit` is the hottest call in the system, so it is the destination's own function and not a method.
    """

    __slots__ = ("emit", "failure", "times", "tracking")

    emit: Emit
    failure: EventFailed | None  # declared by the component with `fail`, also if it caught the exception
    tracking: Acknowledgement | None  # under acknowledging: the event being applied
    times: Times

    def __init__(self, emit: Callable[..., None], times: Times) -> None:
        self.emit = emit
        self.times = times
        self.failure = None
        self.tracking = None

    @property
    def now(self) -> datetime:
        """Processing time, in UTC: the driver's clock when it planned the checkpoint that is being computed.

        Every call for one checkpoint sees the same time, in all instances. The plan records it, so a replay of the checkpoint
        sees it again: an operator that uses `now`, and not the machine's clock, stays deterministic.

        It is not the same again in two cases. An epoch that is abandoned, or that a crash interrupts, is planned again, with a new
        time; of the old one nothing is kept, except rows that were written at once (at-least-once, at-most-once). A checkpoint
        that reads only from polled sources (`Source`, `StatefulSource`) records no time: there it is the machine's clock when the
        instance begins; such a checkpoint is never replayed.
        """
        return self.times.now

    @property
    def watermark(self) -> datetime | None:
        """How far event time has come, in UTC, just before the event being applied; None before every input has come to a time.

        The watermark of a source partition is the latest `time=` that was read from it. That of an instance is the minimum over
        all partitions and instances that it reads from. In `on_timer` it is at or beyond the time of an event-time timer.

        For an instance that reads one partition or one sending instance, the value depends on the events alone: not on the mode,
        on where checkpoints are cut, or on a replay. Where several are read, it also depends on how far each one was read when the
        event was applied, which may differ between runs and in a replay.

        Events reach an operator that reads the watermark one at a time. Streamwork recognises it by its methods; one that hands
        the collector to a function elsewhere declares ``reads_watermark = True``.
        """
        return self.times.watermark

    @property
    def checkpoint(self) -> int:
        """The number of the checkpoint that is being computed: what this call changes in the state is part of it.

        A replay has the same number. An epoch that is abandoned, or that a crash interrupts, is computed again with another number
        or with other events, and nothing is kept of it.
        """
        return self.times.checkpoint

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
        """Acknowledge the event being applied; or an earlier one, by its id.

        Returning from `apply` does the same, unless the component has ``manual_ack = True``. Without acknowledging it has no
        effect.
        """
        if self.tracking is not None:
            self.tracking.ack(event_id)

    def fail(self, reason: str) -> NoReturn:
        """Declare that the event being applied has failed, and end `apply`: nothing of this call counts, and `on_error` applies.

        It raises an exception. If the component catches it (``except Exception``), the event has failed all the same.
        """
        self.failure = EventFailed(reason)
        raise self.failure

    def check(self) -> None:
        """For the engine, after a call: raise a failure that the component declared and caught."""
        if self.failure is not None:
            raise self.failure


class BatchCollector(EventCollector):
    """The collector of `apply_batch`: ``emit_batch(batch)`` takes whole columns, those of the emitted type, in any order.

    ``emit_batch(batch, channel, rows=places)`` also names the rows that its events come from (`AnyOperator.names_rows`). Batches
    and single events come out in the order in which they were emitted.
    """

    __slots__ = ("emit_batch",)

    def __init__(self, emit: Callable[..., None], times: Times, emit_batch: Callable[..., None]) -> None:
        super().__init__(emit, times)
        self.emit_batch = emit_batch


class KeyedCollector(EventCollector):
    """The collector of a `KeyedOperator`: it also sets timers for the key at hand, and forgets the key."""

    __slots__ = ("asked", "cleared", "key", "timers")

    key: Any

    def __init__(self, emit: Callable[..., None], times: Times) -> None:
        super().__init__(emit, times)
        self.forget_wishes()

    def set_timer(self, at: datetime, clock: Literal["event", "processing"] = "event") -> None:
        """Call `on_timer` for this key when that clock reaches `at`. Setting the same timer twice is setting it once."""
        self.timers.append((_timer(at, clock), True))
        self.asked = True

    def delete_timer(self, at: datetime, clock: Literal["event", "processing"] = "event") -> None:
        """Delete the timer of this key that was set for `at`. Without such a timer it has no effect."""
        self.timers.append((_timer(at, clock), False))
        self.asked = True

    def clear_state(self) -> None:
        """Forget this key, its record and its timers, when the call returns; timers set in the same call stay."""
        self.cleared = self.asked = True

    def fail(self, reason: str) -> NoReturn:
        self.asked = True  # so that the engine checks for a failure
        super().fail(reason)

    def forget_wishes(self) -> None:
        """For the engine: drop the requests of the last call, which were carried out or taken back."""
        self.timers: list[tuple[Timer, bool]] = []  # in the order of the calls; True: set, False: delete
        self.asked = self.cleared = False
        self.failure = None


def _timer(at: datetime, clock: str) -> Timer:
    if at.tzinfo is None:
        raise ValueError(f"a timer needs a time zone, and {at!r} has none")
    if not is_time(at):
        raise ValueError(f"a timer needs a time from year 1 to 9999 in UTC, and {at.isoformat()} is none")
    if clock not in ("event", "processing"):
        raise ValueError(f'a timer has the clock "event" or "processing", and not {clock!r}')
    return Timer(in_utc(at), TimerClock(clock))
