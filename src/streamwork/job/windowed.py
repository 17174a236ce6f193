"""`WindowedStream`: a stream divided into windows; and the stream of their results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

from streamwork.components import Event, Key
from streamwork.components.collector import MAIN
from streamwork.components.duration import duration_in_microseconds
from streamwork.components.source import OnError
from streamwork.errors import WrongUse
from streamwork.job.backpressure import JOBS, Lag
from streamwork.job.event_time import sources_of, time_field
from streamwork.job.graph import check_types
from streamwork.job.retry import Retry
from streamwork.job.stream import Stream
from streamwork.operators.aggregates import Unbound
from streamwork.operators.late import LATE
from streamwork.operators.windows import (
    AddKey,
    Counts,
    EachEvent,
    Emission,
    Merge,
    Reduce,
    Trigger,
    Whole,
    Window,
    WindowPlan,
)
from streamwork.operators.windows.kinds import LONGEST
from streamwork.operators.windows.top import Prune, Top, TopPlan

E = TypeVar("E", bound=Event, covariant=True)
O = TypeVar("O", bound=Event)  # noqa: E741 (out)
ClockName = Literal["event", "processing"]
EmitName = Literal["close", "epoch", "event"]


@dataclass(frozen=True)
class WindowedStream(Generic[E]):
    """A stream divided into windows, per key: `aggregate` makes one event of each window."""

    stream: Stream[E]
    window: Window
    key: tuple[str, ...]
    lateness: int
    time: str | None
    emission: Emission
    trigger: Trigger[Any] | None
    id: str
    isolated: bool = False
    deadline: str | float | None = None
    renamed_from: tuple[str, ...] = ()
    lag: Lag = JOBS

    if not TYPE_CHECKING:  # type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            hint = f": add .aggregate(...) before .{name}(...)" if hasattr(Stream, name) else ""
            raise AttributeError(f"a window has no {name!r}{hint}")

    @classmethod
    def of(
        cls,
        stream: Stream[E],
        window: Window,
        key: str | Iterable[str] | None,
        lateness: str | float,
        time: str | None,
        clock: ClockName,
        emit: EmitName,
        trigger: Trigger[Any] | None,
        id: str,
        isolated: bool,
        deadline: str | float | None,
        renamed_from: tuple[str, ...] = (),
        lag: Lag = JOBS,
    ) -> WindowedStream[E]:
        """Checks what a user has given to `Stream.window`."""
        if not isinstance(window, Window):
            raise _wrong(f"{window!r} is not a window", 'use Fixed("10s") or another window')
        for name, given, known in (("clock", clock, ClockName), ("emit", emit, EmitName)):
            if given not in get_args(known):
                raise _wrong(f"{id}: {name}={given!r} is not known", f"use one of: {', '.join(get_args(known))}")
        if trigger is not None and not isinstance(trigger, Trigger):
            raise _wrong(f"{id}: {trigger!r} is not a trigger", "derive from Trigger")
        allowed = duration_in_microseconds(lateness)
        by_event_time = clock == "event" and not window.by_count
        if allowed > LONGEST:
            raise _wrong(f"{id}: lateness={lateness!r} is too long", "use at most 1000 years")
        if not by_event_time and (allowed or time is not None):
            why = "windows by count have no time" if window.by_count else "processing time has no late events"
            raise _wrong(f"{id}: lateness= and time= need event time; {why}", "leave them out")
        nodes = stream.job._nodes
        field = time_field(nodes, stream._inputs, stream.event, time, id) if by_event_time else None
        fields = () if key is None else Key.of(stream.event, key).fields
        emission = Emission(emit)
        return cls(
            stream, window, tuple(fields), allowed, field, emission, trigger, id, isolated, deadline, renamed_from, lag
        )

    def aggregate(
        self,
        to: type[O],
        *,
        on_error: OnError | Retry | None = None,
        parallelism: int | None = None,
        **aggregates: Unbound,
    ) -> WindowResults[O]:
        """Aggregate the events of each window to one event of type `to`.

        Its fields are filled by name: those of the key, `window_start` and `window_end` (of windows by count: `window_number`),
        and an aggregate for each keyword; with ``emit="event"`` also those of the event.
        """
        stream: Stream[Any] = self.stream
        plan = WindowPlan(
            self.id,
            stream.event,
            self.window,
            self.key,
            self.time,
            self.lateness,
            self.emission,
            self.trigger,
            to,
            tuple(aggregates.items()),
            any(source.idle_after is not None for source in sources_of(stream.job._nodes, stream._inputs)),
        )
        late: Stream[Any] | None = None
        operator: Any
        if plan.is_reduced:
            stream = stream.apply(Reduce(plan), id=f"{self.id}-reduce", on_error=on_error)
            late = stream.channel(LATE) if LATE in stream.job._nodes[stream.id].channels else None
            operator = Merge(plan)
        else:
            if not plan.key:
                stream = stream.apply(AddKey(plan), id=f"{self.id}-key")
            operator = Counts(plan) if self.window.by_count else EachEvent(plan) if plan.is_running else Whole(plan)
        made = stream.apply(
            operator,
            key=plan.state_key,
            id=self.id,
            on_error=on_error,
            parallelism=parallelism,
            isolated=self.isolated,
            deadline=self.deadline,
            renamed_from=self.renamed_from,
            backpressure=self.lag.backpressure,
            buffer=self.lag.buffer,
        )
        return WindowResults(made, plan, late)


class WindowResults(Stream[O]):
    """The results of windows. Late events are on its channel `late`."""

    def __init__(self, made: Stream[O], plan: WindowPlan, late: Stream[Any] | None) -> None:
        super().__init__(made.job, made._inputs, made.event)
        self._plan = plan
        self._late = late

    def channel(self, name: str, *, to: type[Event] | None = None) -> Stream[Any]:
        if name == LATE and self._late is not None:
            if to is not None:
                check_types(f"to= of channel {name!r}", to, self._late.event, str(self._late._inputs[0]))
            return self._late
        if self._late is not None and name != MAIN:
            raise WrongUse("SW-JOB-CHANNEL", f"{self.id} has no channel {name!r}", f"use one of: {MAIN}, {LATE}")
        return super().channel(name) if to is None else super().channel(name, to=to)

    def top(
        self,
        n: int,
        *,
        by: str,
        id: str,
        on_error: OnError | Retry | None = None,
        parallelism: int | None = None,
    ) -> Stream[Any]:
        """The `n` events of each window with the largest values of a field, with their `rank`: 1, 2, ... Equal values are ranked by
        the key. The type of the result has the fields of this stream, and `rank`.
        """
        plan = TopPlan.of(id, self._plan, n, by)
        stream: Stream[Any] = self
        if plan.is_pruned:
            stream = stream.apply(Prune(plan), id=f"{id}-reduce", on_error=on_error)
        return stream.apply(Top(plan), key=plan.key, id=id, on_error=on_error, parallelism=parallelism)


def _wrong(cause: str, action: str) -> WrongUse:
    return WrongUse("SW-WINDOW-SETTING", cause, action)
