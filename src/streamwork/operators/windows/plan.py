"""`WindowPlan`: one windowed aggregation, checked: its window, its aggregates, and the types that it takes, keeps and emits.

    column                 of partials   of the state   of results
    the fields of the key  yes           key            if `to` has them
    window_start           yes           sub-key        if `to` has it; of windows by count it is `window_number`
    window_end             yes           record         likewise; in the sub-key of a user's own windows
    window_closes          no            record         no; when there is something to do next, if that is not `window_end`
    window_events          no            record         no; of windows by count: how many events it has
    those of aggregates    yes           record         one for each aggregate

The names of columns are stable: they are columns of the state files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Any

import pyarrow as pa

from streamwork.components import Event, Record, TimerClock
from streamwork.components.made import annotations_of, make_event, make_record
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.components.times import BEGINNING
from streamwork.errors import WrongUse
from streamwork.operators.aggregates import ColumnAggregate, Unbound
from streamwork.operators.aggregates.base import wrong_field
from streamwork.operators.aggregates.columns import Array, Parts, arrow_of
from streamwork.operators.aggregates.plan import AggregatePlan, check_filled
from streamwork.operators.late import late_type
from streamwork.operators.times import as_times
from streamwork.operators.windows.kinds import Assigner, Session, Window
from streamwork.operators.windows.trigger import Trigger

START, END, NUMBER = "window_start", "window_end", "window_number"
CLOSES, EVENTS = "window_closes", "window_events"
EVERYTHING = "everything"
"""The key of a window over all events: a column that is always true."""


class Emission(Enum):
    """When a window emits."""

    CLOSE = "close"  # when it closes, and corrections
    EPOCH = "epoch"  # before each checkpoint, if it has changed
    EVENT = "event"  # with each event


@dataclass(frozen=True)
class WindowPlan(AggregatePlan):
    """A windowed aggregation. It refuses what does not fit together."""

    id: str
    event: type[Event]
    window: Window
    key: tuple[str, ...]  # empty: one window over all events
    time: str | None  # None: processing time, or a window by count
    lateness: int  # in microseconds
    emission: Emission
    trigger: Trigger[Any] | None
    to: type[Event]
    given: tuple[tuple[str, Unbound], ...]
    has_idle_inputs: bool = False  # partitions may be declared idle: then rows find windows closed

    def __post_init__(self) -> None:
        _check_names(self)
        self.aggregates  # noqa: B018 (bound, and checked, here)
        _check_emission(self)
        _check_result(self)

    @cached_property
    def aggregates(self) -> tuple[ColumnAggregate, ...]:
        interleaved = isinstance(self.window, Session)
        return tuple(given.bind(self.event, name, interleaved) for name, given in self.given)

    @property
    def clock(self) -> TimerClock | None:
        """The clock that closes windows; None: they are full after a number of events."""
        if self.window.by_count:
            return None
        return TimerClock.PROCESSING if self.time is None else TimerClock.EVENT

    @property
    def is_running(self) -> bool:
        """True if results are needed for each event."""
        return self.emission is Emission.EVENT or self.trigger is not None

    @property
    def is_reduced(self) -> bool:
        """True if partial aggregates are sent to the windows, not events."""
        return not (self.window.by_count or self.is_running or self.has_idle_inputs)

    @property
    def is_pure(self) -> bool:
        """False if a call that fails may have changed something."""
        return all(one.is_pure for one in self.aggregates) and not (
            isinstance(self.window, Session) and self.is_running  # its rows are applied one after another
        )

    # ---- names and types ------------------------------------------------------------------------------------------

    @property
    def state_key(self) -> tuple[str, ...]:
        return self.key or (EVERYTHING,)

    @property
    def sub_key_fields(self) -> tuple[str, ...]:
        if self.window.by_count:
            return (NUMBER,)
        return (START, END) if isinstance(self.window, Assigner) else (START,)

    @property
    def due(self) -> str:
        """The column with the time at which there is something to do for a window."""
        waits = self.lateness > 0 or isinstance(self.window, Session | Assigner)
        return CLOSES if waits else END

    @cached_property
    def key_types(self) -> dict[str, Any]:
        known = annotations_of(self.event)
        return {name: known[name] for name in self.key} or {EVERYTHING: bool}

    @cached_property
    def keyed_event(self) -> type[Event]:
        """The events of a window over everything, with the column that is their key."""
        return make_event(f"Keyed{self.event.__name__}", {**annotations_of(self.event), EVERYTHING: bool})

    @cached_property
    def partial(self) -> type[Event]:
        """A partial aggregate of one key and window."""
        columns = {name: kind for name, (kind, _) in self.columns.items()}
        fields = {**self.key_types, START: datetime, END: datetime, **columns}
        return make_event(f"Partial{self.to.__name__}", fields, {**self.event.renamed_from, **self._former})

    @cached_property
    def record(self) -> type[Record]:
        """The state of one key and window."""
        own: dict[str, tuple[Any, Any]] = {}
        if self.window.by_count:
            own[EVENTS] = (int, 0)
        elif not isinstance(self.window, Assigner):
            own[END] = (datetime | None, None)
        if self.clock is not None and self.due == CLOSES:
            own[CLOSES] = (datetime | None, None)
        return make_record(f"{self.to.__name__}Window", {**own, **self.columns}, self._former)

    @property
    def _former(self) -> dict[str, str]:
        """Columns of aggregates whose field of the result was renamed: the names of columns begin with its name."""
        renamed = self.to.renamed_from
        return {
            column: f"{renamed[one.name]}{column[len(one.name) :]}"
            for one in self.aggregates
            if one.name in renamed
            for column in one.columns
        }

    @cached_property
    def sub_key(self) -> type[Record]:
        kinds: dict[str, tuple[Any, Any]] = dict.fromkeys((START, END), (datetime, BEGINNING))
        kinds[NUMBER] = (int, 0)
        return make_record("WindowKey", {name: kinds[name] for name in self.sub_key_fields})

    @cached_property
    def late(self) -> type[Event]:
        return late_type(self.event)

    def as_batch(self, keys: pa.RecordBatch, starts: Array, ends: Array, parts: Parts) -> pa.RecordBatch:
        """A batch of partials."""
        columns = [*keys.columns, as_times(starts), as_times(ends)]
        columns += [arrow_of(field, parts[name]) for name, field in self.fields.items()]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.partial))


def keys_of(batch: pa.RecordBatch, names: Sequence[str], rows: Array) -> pa.RecordBatch:
    """The key columns of some rows."""
    return batch.select(list(names)).take(pa.array(rows))


# ---- checks -----------------------------------------------------------------------------------------------------------


def _check_names(plan: WindowPlan) -> None:
    taken = {START, END, NUMBER, CLOSES, EVENTS}
    for name in plan.key:
        if name in taken:
            raise wrong_field(
                f"{plan.id}: the key field {name!r} has the name of a column of windows", "rename it before, with map"
            )
    seen = {*taken, *plan.state_key}
    for name, given in plan.given:
        if not isinstance(given, Unbound):
            raise wrong_field(
                f"{plan.id}: {name}={given!r} is not an aggregate",
                'use count(), sum_of("price") or another aggregate',
            )
    for aggregate in plan.aggregates:
        for name in aggregate.columns:
            if name in seen:
                raise wrong_field(
                    f"{plan.id}: two columns of the state would be named {name!r}",
                    "rename an aggregate: the names of its columns begin with its name",
                )
            seen.add(name)


def _check_emission(plan: WindowPlan) -> None:
    if plan.emission is Emission.EPOCH and isinstance(plan.window, Session):
        raise WrongUse(
            "SW-WINDOW-EMIT",
            f'{plan.id}: emit="epoch" with Session: a result would remain of a session that is merged with another one',
            'use emit="close", or emit="event"',
        )
    if plan.trigger is not None and plan.emission is not Emission.CLOSE:
        raise WrongUse(
            "SW-WINDOW-EMIT",
            f'{plan.id}: trigger= with emit="{plan.emission.value}"',
            'use a trigger with emit="close": it adds results before the window closes',
        )


def _check_result(plan: WindowPlan) -> None:
    """Every field of the result is filled, by name, with a value of its type; and every aggregate has a field."""
    made = {one.name: one.result_field for one in plan.aggregates}
    event = fields_of(plan.event)
    known: dict[str, Any] = {name: event[name] for name in (event if plan.emission is Emission.EVENT else plan.key)}
    frame = fields_of(
        make_record("Frame", {START: (datetime, BEGINNING), END: (datetime, BEGINNING), NUMBER: (int, 0)})
    )
    known.update({name: frame[name] for name in ((NUMBER,) if plan.window.by_count else (START, END))})
    known.update(made)
    check_filled(plan.id, plan.to, plan.event, known, made)
