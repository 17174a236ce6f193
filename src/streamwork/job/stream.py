"""`Stream`: the events that a component emits, and the methods that add components behind it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeVar, Unpack, overload

from streamwork.components import (
    AnyOperator,
    Event,
    Grouping,
    Key,
    KeyedOperator,
    Observer,
    Operator,
    Record,
    Sink,
    StatefulOperator,
    TableOperator,
)
from streamwork.components.collector import MAIN
from streamwork.components.duration import seconds
from streamwork.components.expression import Expression
from streamwork.components.grouping import Fields
from streamwork.components.source import OnError
from streamwork.errors import WrongUse
from streamwork.job.backpressure import BackpressureName, Lag, known_backpressure
from streamwork.job.graph import check_types
from streamwork.job.joining import JoinCall, JoinOptions, Table, make_table
from streamwork.job.names import slug
from streamwork.job.node import Input, Node, NodeKind, Port, ids
from streamwork.job.operators import check_ports, check_ttl, checked, not_a
from streamwork.job.retry import Retry, policy, policy_of_sink
from streamwork.job.semantics import IsolationName, known_isolation
from streamwork.operators import Filter, FlatMap, Map, MapWithState, Where
from streamwork.operators.windows import Trigger, Window

if TYPE_CHECKING:
    from streamwork.job.job import Job
    from streamwork.job.windowed import WindowedStream

E = TypeVar("E", bound=Event, covariant=True)
R = TypeVar("R", bound=Record)
O = TypeVar("O", bound=Event)  # noqa: E741 (E in, R kept, O out)


class Stream(Generic[E]):
    """The events that one or several components emit. Every method adds to the job and leaves this stream as it is.

    `E` is the type of the events. A stream of a type can be used where a stream of its base class is expected.
    """

    def __init__(self, job: Job, inputs: tuple[Input, ...], event: type[E] | None) -> None:
        self.job = job
        self._inputs = inputs
        self._event = event

    @property
    def id(self) -> str:
        """The id of the component that emits this stream."""
        return self._inputs[0].node

    @property
    def event(self) -> type[E]:
        """The type of the events."""
        if self._event is None:
            raise WrongUse("SW-JOB-EDGE", f"{self.id} is a sink: nothing comes out of it", "use the stream before it")
        return self._event

    @overload
    def apply(
        self,
        operator: Operator[E, O],
        *,
        id: str | None = None,
        grouping: Grouping | None = None,
        parallelism: int | None = None,
        on_error: OnError | Retry | None = None,
        isolated: bool = False,
        deadline: str | float | None = None,
        renamed_from: str | Sequence[str] = (),
        backpressure: BackpressureName | None = None,
        buffer: int | None = None,
    ) -> Stream[O]: ...

    @overload
    def apply(
        self,
        operator: StatefulOperator[E, R, O],
        *,
        id: str,
        grouping: Grouping | None = None,
        parallelism: int | None = None,
        on_error: OnError | Retry | None = None,
        isolated: bool = False,
        deadline: str | float | None = None,
        renamed_from: str | Sequence[str] = (),
        backpressure: BackpressureName | None = None,
        buffer: int | None = None,
    ) -> Stream[O]: ...

    @overload
    def apply(
        self,
        operator: KeyedOperator[E, R, O],
        *,
        key: str | Iterable[str],
        id: str,
        ttl: str | float | None = None,
        ttl_clock: Literal["event", "processing"] = "event",
        parallelism: int | None = None,
        on_error: OnError | Retry | None = None,
        isolated: bool = False,
        deadline: str | float | None = None,
        renamed_from: str | Sequence[str] = (),
        backpressure: BackpressureName | None = None,
        buffer: int | None = None,
    ) -> Stream[O]: ...

    @overload
    def apply(
        self,
        operator: TableOperator[E, R, O],
        *,
        key: str | Iterable[str] | None = None,
        id: str | None = None,
        grouping: Grouping | None = None,
        others: Mapping[str, tuple[Stream[Any], str | Iterable[str] | None]] | None = None,
        parallelism: int | None = None,
        on_error: OnError | Retry | None = None,
        isolated: bool = False,
        deadline: str | float | None = None,
        renamed_from: str | Sequence[str] = (),
        backpressure: BackpressureName | None = None,
        buffer: int | None = None,
    ) -> Stream[O]: ...

    def apply(
        self,
        operator: AnyOperator,
        *,
        key: str | Iterable[str] | None = None,
        id: str | None = None,
        grouping: Grouping | None = None,
        others: Mapping[str, tuple[Stream[Any], str | Iterable[str] | None]] | None = None,
        ttl: str | float | None = None,
        ttl_clock: Literal["event", "processing"] = "event",
        parallelism: int | None = None,
        on_error: OnError | Retry | None = None,
        isolated: bool = False,
        deadline: str | float | None = None,
        renamed_from: str | Sequence[str] = (),
        backpressure: BackpressureName | None = None,
        buffer: int | None = None,
    ) -> Stream[Any]:
        """Apply an operator to this stream. An operator with state needs `id=`; one that keeps it by key also `key=`, its field or
        fields. `others` are the streams at the other ports of a `TableOperator`, with their keys: ``{"right": (clicks, "user")}``.

        `ttl` of a `KeyedOperator`: a key that no event has touched for so long is forgotten, with its record and its timers. By
        event time it counts from the first advance of the watermark behind the key's last event. ``ttl_clock="processing"``
        counts processing time.

        Without `parallelism=`, a keyed operator, or one with `grouping=`, has as many instances as the job's parallelism. Any other
        has as many as its input, so that events stay in their instance and in order; more instances need a grouping
        (SW-JOB-ORDER).

        `on_error` applies to an event on which the operator raises: "fail" stops the job; "drop" discards the event, with
        everything that applying it has changed, and counts it; "dead-letter" also keeps it. The default depends on the semantics.
        `Retry(times=, within=, then=)` retries the event in place first, and then applies `then`.

        `isolated`, under at-most-once: in live mode the operator runs in a process of its own behind a bounded queue. If it dies,
        hangs or lags, its results are missing, and everything else goes on; it is restarted with the state of its last
        checkpoint. `deadline` is how long one event may take; it implies `isolated`. Other modes ignore both.

        `renamed_from` is the id that the operator had, or several, newest first: it goes on with the state of that id.

        `backpressure` is the policy when this operator lags, in the modes `local` and `live` (`job.backpressure`); without it that
        of the job applies. With "drop", new events for an instance that lags are dropped and counted (at-most-once). `buffer` is
        how many events may wait for an instance in a channel (65,536): with "drop", no event waits longer than they take.
        """
        then, retry = policy(on_error)
        takes, keeps, gives = checked(operator, id, key is not None, grouping is not None, then, retry is not None)
        if isinstance(grouping, Fields):
            Key.of(self.event, grouping.fields)
        node_id = id if id is not None else self.job._free_id(f"{self.id}-{slug(type(operator).__name__)}"[:60])
        check_types(node_id, takes, self.event, self.id)
        first = Port(self._inputs, takes, None if key is None else Key.of(self.event, key), grouping)
        ports = (first, *(self._port(node_id, name, *given) for name, given in (others or {}).items()))
        check_ports(operator, node_id, ports)
        forgotten, clock = check_ttl(operator, node_id, ttl, ttl_clock)
        return self.job._add(
            Node(
                node_id,
                NodeKind.OPERATOR,
                operator,
                ports,
                keeps,
                gives,
                on_error=then or "",
                retry=retry,
                ttl=forgotten,
                ttl_clock=clock,
                isolated=isolated or deadline is not None,
                deadline=None if deadline is None else seconds(deadline),
                renamed_from=ids(renamed_from),
                backpressure=None if backpressure is None else known_backpressure(backpressure),
                buffer=buffer,
            ),
            parallelism,
        )

    def _port(self, node_id: str, name: str, stream: Stream[Any], key: str | Iterable[str] | None) -> Port:
        """A port besides the main one."""
        if stream.job is not self.job:
            raise other_job(self.job.name, stream)
        return Port(stream._inputs, stream.event, None if key is None else Key.of(stream.event, key), name=name)

    @overload
    def channel(self, name: str) -> Stream[Any]: ...

    @overload
    def channel(self, name: str, *, to: type[O]) -> Stream[O]: ...

    def channel(self, name: str, *, to: type[Event] | None = None) -> Stream[Any]:
        """The events that the component emits on a channel that it declares: ``stream.channel("late")``.

        `to` is the type that the channel is declared with. It is checked, and type checkers then know the events of the stream.
        """
        node = self.job._nodes[self.id]
        kind = node.emits(name)
        if len(self._inputs) > 1 or kind is None:
            known = ", ".join([MAIN, *node.channels])
            raise WrongUse(
                "SW-JOB-CHANNEL",
                f"{self.id} has no channel {name!r}",
                f"use one of: {known}; or declare it in `channels`",
            )
        if to is not None:
            check_types(f"to= of channel {name!r}", to, kind, str(Input(self.id, name)))
        return Stream(self.job, (Input(self.id, name),), kind)

    def union(self, *others: Stream[E]) -> Stream[E]:
        """This stream and others of the same type, merged. Each input keeps its own order."""
        for other in others:
            if other.job is not self.job:
                raise other_job(self.job.name, other)
            check_types(f"the union with {self.id}", self.event, other.event, other.id)
        inputs = dict.fromkeys([*self._inputs, *(one for other in others for one in other._inputs)])
        return Stream(self.job, tuple(inputs), self.event)

    def map(
        self,
        function: Callable[[E], O],
        *,
        to: type[O] | None = None,
        id: str | None = None,
        keeps_key: bool = False,
        on_error: OnError | Retry | None = None,
    ) -> Stream[O]:
        """One event for each event. `to` is the type that comes out; the return annotation of the function does instead.

        `keeps_key` as in `AnyOperator`: True if the function leaves the fields unchanged that events are partitioned by.
        """
        operator: Operator[E, O] = Map(function, self.event, _gives(function, to), keeps_key)
        return self.apply(operator, id=self._name(id, function, "map"), on_error=on_error)

    def flat_map(
        self,
        function: Callable[[E], Iterable[O]],
        *,
        to: type[O],
        id: str | None = None,
        keeps_key: bool = False,
        on_error: OnError | Retry | None = None,
    ) -> Stream[O]:
        """Any number of events for each event. `to` is the type that comes out; `keeps_key` as in `map`."""
        operator: Operator[E, O] = FlatMap(function, self.event, to, keeps_key)
        return self.apply(operator, id=self._name(id, function, "flat-map"), on_error=on_error)

    def filter(
        self,
        function: Callable[[E], object],
        *,
        id: str | None = None,
        on_error: OnError | Retry | None = None,
    ) -> Stream[E]:
        """The events for which the function returns something true."""
        operator: Operator[E, E] = Filter(function, self.event, self.event)
        return self.apply(operator, id=self._name(id, function, "filter"), on_error=on_error)

    def where(self, expression: Expression, *, id: str | None = None) -> Stream[E]:
        """The events for which an expression is true: ``stream.where(field("kind") == "view")``."""
        if not isinstance(expression, Expression):
            raise not_a("expression", expression, 'something like field("kind") == "view"; for a function, use filter')
        expression.check(self.event)
        operator: Operator[E, E] = Where(expression, self.event)
        return self.apply(operator, id=self._name(id, None, "where"))

    def map_with_state(
        self,
        function: Callable[[E, R], O | None],
        *,
        key: str | Iterable[str],
        state: type[R],
        id: str,
        to: type[O] | None = None,
        keeps_key: bool = False,
        on_error: OnError | Retry | None = None,
        renamed_from: str | Sequence[str] = (),
    ) -> Stream[O]:
        """``function(event, state)`` changes the record of the event's key, and returns one event, or None for none.

        `keeps_key`: True if the event that it returns has the same key.
        """
        operator: KeyedOperator[E, R, O] = MapWithState(function, self.event, state, _gives(function, to), keeps_key)
        return self.apply(operator, key=key, id=id, on_error=on_error, renamed_from=renamed_from)

    def table(
        self,
        *,
        key: str | Iterable[str],
        id: str,
        time: str | None = None,
        history: str | float = 0,
        lateness: str | float = 0,
        parallelism: int | None = None,
        renamed_from: str | Sequence[str] = (),
        backpressure: BackpressureName | None = None,
        buffer: int | None = None,
    ) -> Table[E]:
        """This stream as a table for `join`: the newest event of each key.

        With event time, an event is the version of its key that is valid from its time on. `time` names the field, if it is not
        that of the source. Versions are kept for events up to `history` behind the watermark. An event more than `lateness` behind
        the watermark of its partition is late: it goes to ``table.late``; joins wait for that long. Without event time, the event
        that arrives last is the table's.

        `backpressure` and `buffer` as in `apply`. A table and the joins that read it lag together: the first of them that has a
        policy decides for all.
        """
        lag = Lag.of(backpressure, buffer)
        return make_table(self, key, id, time, history, lateness, parallelism, ids(renamed_from), lag)

    @overload
    def join(
        self, *others: Any, key: str | Iterable[str], id: str, to: type[O], **options: Unpack[JoinOptions]
    ) -> Stream[O]: ...

    @overload
    def join(
        self, *others: Any, key: str | Iterable[str], id: str, to: None = None, **options: Unpack[JoinOptions]
    ) -> Stream[Any]: ...

    def join(
        self,
        *others: Any,
        key: str | Iterable[str],
        id: str,
        to: type[Event] | None = None,
        **options: Unpack[JoinOptions],
    ) -> Stream[Any]:
        """Join this stream by key: with tables of streams (`table`); with another stream, `within` a bound of time; with a static
        table (a Parquet path, an Arrow table, a data frame, or `StaticTable`); with a database (`Lookup`).

        The events that come out have the fields of all sides; a field whose name is taken has the name of its side before it. With
        `to`, they are events of that type, whose fields are found by name. `JoinOptions` has the other arguments.
        """
        return JoinCall(self, others, key, id, to, **options).build()

    def window(
        self,
        window: Window,
        *,
        key: str | Iterable[str] | None = None,
        lateness: str | float = "0s",
        time: str | None = None,
        clock: Literal["event", "processing"] = "event",
        emit: Literal["close", "epoch", "event"] = "close",
        trigger: Trigger[Any] | None = None,
        isolated: bool = False,
        deadline: str | float | None = None,
        renamed_from: str | Sequence[str] = (),
        backpressure: BackpressureName | None = None,
        buffer: int | None = None,
        id: str,
    ) -> WindowedStream[E]:
        """Divide this stream into windows, per key, or without a key over all events::

            views.window(Fixed("10s"), key="campaign", id="per-campaign").aggregate(CampaignViews, views=count())

        lateness    how long after its end, in event time, a window takes events; each then emits a correction
        time        the field of event time, if a step since the source has made new events
        clock       "event": windows close when event time has passed them; "processing": by processing time
        emit        "close": when the window closes, and corrections; "epoch": before each checkpoint, if it has changed;
                    "event": with each event, the window's aggregates including it
        trigger     further results before the window closes
        isolated, deadline, renamed_from, backpressure, buffer   as in `apply`

        Events that come too late for all their windows are on channel `late` of the result.
        """
        from streamwork.job.windowed import WindowedStream

        former = ids(renamed_from)
        return WindowedStream.of(
            self,
            window,
            key,
            lateness,
            time,
            clock,
            emit,
            trigger,
            id,
            isolated,
            deadline,
            former,
            Lag.of(backpressure, buffer),
        )

    def sink(
        self,
        sink: Sink[E] | Observer,
        *,
        id: str,
        on_error: OnError | None = None,
        isolation: IsolationName = "read-committed",
        renamed_from: str | Sequence[str] = (),
        backpressure: BackpressureName | None = None,
        buffer: int | None = None,
    ) -> Stream[Never]:
        """End this stream in a sink; nothing comes out of it.

        `on_error` applies to a row that the sink rejects for good: "fail" fails the job, "dead-letter" keeps the row as a dead
        letter, "drop" counts it. `isolation="read-uncommitted"` also shows rows before they are committed (exactly-once;
        elsewhere rows are written at once). `renamed_from` is the id that the sink had, or several, newest first: its target
        goes on where it is. `backpressure` and `buffer` as in
        `apply`.
        """
        if not isinstance(sink, Sink | Observer):
            raise not_a("sink", sink, "SqliteSink or another Sink")
        then = policy_of_sink(id, on_error)
        node = Node(
            id,
            NodeKind.SINK,
            sink,
            (Port(self._inputs, self.event),),
            on_error=then or "",
            isolation=known_isolation(isolation),
            renamed_from=ids(renamed_from),
            backpressure=None if backpressure is None else known_backpressure(backpressure),
            buffer=buffer,
        )
        return self.job._add(node)

    def print(self) -> Stream[E]:
        """Print each event when its checkpoint is completed. Returns this stream."""
        assert self.job.printer is not None, "import streamwork, not a module inside it"
        self.sink(self.job.printer(), id=self.job._free_id(f"{self.id}-print"[:60]))
        return self

    def _name(self, given: str | None, function: Callable[..., Any] | None, kind: str) -> str:
        """The id of a function's step: as given, or made from the function's name, or from the kind of step."""
        if given is not None:
            return given
        named = getattr(function, "__name__", "<lambda>")
        return self.job._free_id(f"{self.id}-{kind if named.startswith('<') or function is None else slug(named)}"[:60])


def other_job(name: str, stream: Stream[Any]) -> WrongUse:
    return WrongUse("SW-JOB-EDGE", f"{stream.id} belongs to job {stream.job.name!r}", f"build it in {name!r}")


def _gives(function: Callable[..., Any], to: type[O] | None) -> type[O]:
    """The type that a function returns: `to`, or its annotation."""
    if to is not None:
        return to
    try:
        annotated = inspect.get_annotations(function, eval_str=True).get("return")
    except NameError:
        annotated = None
    if not (isinstance(annotated, type) and issubclass(annotated, Event)):
        named = getattr(function, "__name__", "the function")
        raise WrongUse(
            "SW-TYPE-MISSING",
            f"{named} does not declare the event that it returns",
            "add to=YourEvent, or annotate it: -> YourEvent",
        )
    return annotated  # type: ignore[return-value]  # mypy's `O` is what the annotation says
