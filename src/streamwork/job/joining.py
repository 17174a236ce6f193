"""Builds joins: from the arguments of `Stream.table` and `Stream.join` to components of the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import pyarrow as pa

from streamwork.components import Event, Key
from streamwork.components.duration import duration_in_microseconds
from streamwork.components.source import OnError
from streamwork.errors import WrongUse
from streamwork.job.backpressure import JOBS, BackpressureName, Lag
from streamwork.job.event_time import declared_times, time_field
from streamwork.job.node import arrow_types
from streamwork.job.retry import Retry
from streamwork.operators.joins.kinds import How, JoinKind
from streamwork.operators.joins.outer_table_join import OuterTableJoin
from streamwork.operators.joins.reference import Reference, ReferenceJoin
from streamwork.operators.joins.result import Side, result_of
from streamwork.operators.joins.static import StaticTable
from streamwork.operators.joins.table import TableOfStream
from streamwork.operators.joins.table_join import TableJoin, TimedTableJoin
from streamwork.operators.joins.time_bounded import RIGHT_PORT, TimeBoundedJoin
from streamwork.operators.late import LATE

if TYPE_CHECKING:
    from streamwork.job.stream import Stream

E = TypeVar("E", bound=Event, covariant=True)
KeyFields = str | Iterable[str]
Duration = str | float


class Table(Generic[E]):
    """A stream as a table, which streams are joined with: the newest event of each key, and earlier ones as far as needed."""

    def __init__(self, stream: Stream[E], operator: TableOfStream) -> None:
        self._stream = stream
        self._operator = operator

    @property
    def id(self) -> str:
        return self._stream.id

    @property
    def late(self) -> Stream[Any]:
        """Events that came too late to be versions of the table: their fields, `late_by` (seconds) and `late_reason`."""
        return self._stream.channel(LATE)


def make_table(
    stream: Stream[E],
    key: KeyFields,
    id: str,
    time: str | None,
    history: Duration,
    lateness: Duration,
    parallelism: int | None,
    renamed_from: tuple[str, ...] = (),
    lag: Lag = JOBS,
) -> Table[E]:
    side = Side(id, stream.event, Key.of(stream.event, key).fields)
    timed = time is not None or None not in declared_times(stream.job._nodes, stream._inputs).values()
    if not timed and (duration_in_microseconds(history) or duration_in_microseconds(lateness)):
        raise WrongUse(
            "SW-JOB-TIME",
            f"table {id!r} has history= or lateness=, but a source that it reads from has no event time",
            'declare the field that says when an event happened: job.source(..., time="at")',
        )
    operator = TableOfStream(
        side,
        _time(stream, time, f"table {id!r}") if timed else None,
        duration_in_microseconds(history),
        duration_in_microseconds(lateness),
    )
    made = stream.apply(
        operator,
        key=side.key,
        id=id,
        parallelism=parallelism,
        renamed_from=renamed_from,
        backpressure=lag.backpressure,
        buffer=lag.buffer,
    )
    return Table(made, operator)


class JoinOptions(TypedDict, total=False):
    """The options of `Stream.join`."""

    how: How
    """Which rows are emitted without a match: "inner" (the default), "left", "right", "full". "right" and "full" are for two
    streams, and for one table with event time: a version that no row has met is emitted when it is over."""
    within: Duration
    """Two streams: rows match whose times are at most this far apart."""
    as_of: str
    """Tables: the time field of the stream. A row meets the version that is valid at that time. The default is that of the
    source, if all sides have event time; else rows meet the newest version when they arrive."""
    time: str
    """The time field of the stream, if it is not that of the source."""
    lateness: Duration
    """How late a row may be; a row that comes later goes to channel `late` (`late-right` of the other stream). The default is 0
    for two streams, and the history of the tables."""
    other_key: KeyFields
    """Two streams: the key of the other one, if its fields have other names."""
    other_time: str
    """Two streams: the time field of the other one, if it has another name."""
    parallelism: int
    on_error: OnError | Retry
    renamed_from: str | Sequence[str]
    """The id that the join had, or several, newest first."""
    backpressure: BackpressureName
    """What happens when the join lags, as in `apply`."""
    buffer: int
    """How many events may wait for it in a channel."""


@dataclass(frozen=True)
class JoinCall:
    """The arguments of `Stream.join`."""

    stream: Stream[Any]
    others: tuple[Any, ...]
    key: KeyFields
    id: str
    to: type[Event] | None
    how: str = "inner"
    within: Duration | None = None
    as_of: str | None = None
    time: str | None = None
    lateness: Duration | None = None
    other_key: KeyFields | None = None
    other_time: str | None = None
    parallelism: int | None = None
    on_error: OnError | Retry | None = None
    renamed_from: str | Sequence[str] = ()
    backpressure: BackpressureName | None = None
    buffer: int | None = None

    def build(self) -> Stream[Any]:
        """Add the components of the join."""
        kind = JoinKind.known(self.how)
        if not self.others:
            raise WrongUse("SW-JOIN-SIDES", f"join {self.id!r} has one side", "give a table, a stream or a lookup")
        if all(isinstance(one, Table) for one in self.others):
            return self._with_tables([*self.others], kind)
        if self._is_stream(self.others[0]) and len(self.others) == 1:
            return self._with_stream(self.others[0], kind)
        if not any(isinstance(one, Table) or self._is_stream(one) for one in self.others):
            return self._with_references(kind)
        raise WrongUse(
            "SW-JOIN-SIDES",
            f"join {self.id!r} mixes streams, tables of streams, and static tables or lookups",
            "make one join for each, one behind the other; a stream is joined with one stream at a time, within= a bound",
        )

    def _with_stream(self, other: Stream[Any], kind: JoinKind) -> Stream[Any]:
        self._refuse(as_of=self.as_of)
        if self.within is None:
            raise WrongUse(
                "SW-JOIN-UNBOUNDED",
                f"join {self.id!r} of {self.stream.id} and {other.id} has no bound: it would keep every event for ever",
                'add a bound: within="30min"; or make one of them a table: other.table(key=..., id=...)',
            )
        left = self._left()
        right = Side(other.id, other.event, Key.of(other.event, self.other_key or left.key).fields)
        self._check_keys(left, right)
        what = f"join {self.id!r}"
        times = (_time(self.stream, self.time, what), _time(other, self.other_time or self.time, what))
        operator = TimeBoundedJoin(
            (left, right),
            times,
            kind,
            result_of((left, right), kind, self.id, self.to),
            duration_in_microseconds(self.within),
            duration_in_microseconds(self.lateness or 0),
        )
        return self._apply(operator, left.key, {RIGHT_PORT: (other, right.key)})

    def _with_tables(self, tables: list[Table[Any]], kind: JoinKind) -> Stream[Any]:
        self._refuse(within=self.within, other_key=self.other_key, other_time=self.other_time)
        if len({table.id for table in tables}) < len(tables):
            raise WrongUse("SW-JOIN-SIDES", f"join {self.id!r} names a table twice", "name each table once")
        operators = [table._operator for table in tables]
        timed = self._is_timed(operators)
        if not timed:
            kind = kind.without_right(f"table {tables[0].id!r}, which is joined on arrival,")
        elif len(tables) > 1:
            kind = kind.without_right("a join with several tables")
        left = self._left()
        for operator in operators:
            self._check_keys(left, operator.side)
        result = result_of([left, *(operator.side for operator in operators)], kind, self.id, self.to)
        others = {table.id: (table._stream, table._operator.side.key) for table in tables}
        if not timed:
            self._refuse(lateness=self.lateness)
            return self._apply(TableJoin(left, operators, kind, result), left.key, others)
        history = min(operator.history for operator in operators)
        lateness = history if self.lateness is None else duration_in_microseconds(self.lateness)
        if lateness > history:
            raise WrongUse(
                "SW-JOIN-HISTORY",
                f"join {self.id!r} accepts events that are {lateness / 1e6:g} s late, but a table of it keeps versions for "
                f"{history / 1e6:g} s only",
                "give the table a history= of at least that",
            )
        time = _time(self.stream, self.as_of or self.time, f"join {self.id!r}")
        join = OuterTableJoin if kind.keeps_right else TimedTableJoin
        return self._apply(join(left, operators, kind, result, time, lateness), left.key, others)

    def _with_references(self, kind: JoinKind) -> Stream[Any]:
        self._refuse(
            within=self.within,
            as_of=self.as_of,
            time=self.time,
            lateness=self.lateness,
            other_key=self.other_key,
            other_time=self.other_time,
        )
        left = self._left()
        references = [self._reference(one, left) for one in self.others]
        kind = kind.without_right(f"table {references[0].side.name!r}")
        for reference in references:
            self._check_keys(left, reference.side)
        result = result_of([left, *(reference.side for reference in references)], kind, self.id, self.to)
        operator = ReferenceJoin(left, references, kind, result)
        return self.stream.apply(
            operator,
            id=self.id,
            parallelism=self.parallelism,
            on_error=self.on_error,
            backpressure=self.backpressure,
            buffer=self.buffer,
        )

    def _reference(self, given: Any, left: Side) -> Reference:
        if isinstance(given, Reference) and not isinstance(given, StaticTable):
            return given
        table = given if isinstance(given, StaticTable) else StaticTable(given)
        return table.placed(Path(self.stream.job.home), left.key)

    def _is_timed(self, tables: Sequence[TableOfStream]) -> bool:
        """True if rows meet the version that is valid at their time; False if they meet the newest one on arrival."""
        asked = self.as_of or self.time
        absent = [table.side.name for table in tables if table.time is None]
        has_time = None not in declared_times(self.stream.job._nodes, self.stream._inputs).values()
        if asked is not None and (absent or not has_time):
            raise WrongUse(
                "SW-JOB-TIME",
                f"join {self.id!r} goes by event time, but {absent[0] if absent else self.stream.id} has none",
                'declare the field that says when an event happened: job.source(..., time="at")',
            )
        return has_time and not absent

    def _left(self) -> Side:
        return Side(self.stream.id, self.stream.event, Key.of(self.stream.event, self.key).fields)

    def _apply(self, operator: Any, key: Sequence[str], others: dict[str, tuple[Stream[Any], Any]]) -> Stream[Any]:
        return self.stream.apply(
            operator,
            key=key,
            id=self.id,
            others=others,
            parallelism=self.parallelism,
            on_error=self.on_error,
            renamed_from=self.renamed_from,
            backpressure=self.backpressure,
            buffer=self.buffer,
        )

    def _check_keys(self, left: Side, other: Side) -> None:
        """Refuse keys of different types: they would never be equal."""
        mine, theirs = arrow_types(left.event, left.key), arrow_types(other.event, other.key)
        if mine != theirs:
            raise WrongUse(
                "SW-KEY-TYPE",
                f"join {self.id!r}: the key of {left.name} is {_key_text(left, mine)}, that of {other.name} is "
                f"{_key_text(other, theirs)}",
                "join by the same number of fields, of the same types; convert one of them before the join, with map",
            )

    def _refuse(self, **given: Any) -> None:
        """Refuse arguments that have no meaning for this kind of join."""
        for name, value in given.items():
            if value is not None:
                raise WrongUse(
                    "SW-JOIN-ARGUMENT",
                    f"join {self.id!r}: {name}= has no meaning here",
                    "within=, other_key= and other_time= are for two streams; as_of=, time= and lateness= need event time; see "
                    "docs/joins.md",
                )

    @staticmethod
    def _is_stream(one: Any) -> bool:
        from streamwork.job.stream import Stream  # which builds joins with this module

        return isinstance(one, Stream)


def _time(stream: Stream[Any], given: str | None, what: str) -> str:
    return time_field(stream.job._nodes, stream._inputs, stream.event, given, what)


def _key_text(side: Side, types: Sequence[pa.DataType]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in zip(side.key, types, strict=True))
