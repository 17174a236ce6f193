"""A stream as a table: the newest event of each key, and the versions before it that joins may still ask for.

With event time, a version is valid from its own time until that of the next one. Versions are kept for joins of rows that are
up to `history` behind the watermark. A version is forgotten when the next one is valid at the previous watermark - history -
lateness: one wave later than it could, so that joins of the wave still find it. Without event time, the event that arrives
last replaces the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event, Record
from streamwork.components.collector import TimerClock
from streamwork.components.columns import distinct, rows_without_null
from streamwork.components.field_types import LAST_TIME
from streamwork.components.made import annotations_of, make_record
from streamwork.components.table_operator import NEVER, Rows, StateTable, TableCollector, TableOperator
from streamwork.components.times import BEGINNING, microseconds
from streamwork.errors import WrongUse
from streamwork.operators.joins import matching
from streamwork.operators.joins.columns import (
    Array,
    former_names,
    kept_fields,
    keys_of,
    state_times,
)
from streamwork.operators.joins.result import Side
from streamwork.operators.late import LATE, late_type, take_in_time
from streamwork.operators.times import minimum_of, numbers_of

FROM, UNTIL = "valid_from", "valid_until"
ALWAYS = microseconds(LAST_TIME)
"""The end of a version that is the newest one."""


class Version(Record):
    """The sub-key of a table with event time."""

    valid_from: datetime = BEGINNING


class TableOfStream(TableOperator[Any, Any, Any]):
    """Materialises a stream. It emits only late events; joins read its state."""

    shares_state = True
    judges_lateness = True

    def __init__(self, side: Side, time: str | None, history: int = 0, lateness: int = 0) -> None:
        """`time` is the time field; None: without event time. `history` and `lateness` are microseconds."""
        self.side = side
        self.time = time
        self.history = history
        self.lateness = lateness
        self.kept = [name for name in annotations_of(side.event) if name not in side.key and name != time]
        for name in {FROM, UNTIL} & {*side.key, *self.kept}:
            raise WrongUse(
                "SW-KEY-CLASH",
                f"{side.name}: {side.event.__name__}.{name} has the name of a column of the table's state",
                "rename it before the table, with map",
            )
        fields = kept_fields(side.event, self.kept)
        if time is None:
            self.judges_lateness = False
        else:
            self.sub_key = Version
            self.clocks = frozenset((TimerClock.EVENT,))
            self._late = late_type(side.event)
            self.channels = {LATE: self._late}
            self.late_channels = frozenset(self.channels)
            fields[UNTIL] = (datetime, LAST_TIME)
        self._record = make_record("TableRow", fields, former_names(side.event))

    def types(self) -> tuple[type[Event], type[Record], type[Event]]:
        return self.side.event, self._record, self.side.event

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        batch = rows.batch
        if self.time is not None:
            times = numbers_of(batch.column(self.time))
            places = take_in_time(rows, times + self.lateness, self._late, collector, inclusive=False)
            if len(places) < len(times):
                batch = batch.take(pa.array(places))
        keys = keys_of(batch, self.side.key, self.side.key)
        if self.time is None:  # a null matches nothing; with event time, an outer join emits it when it is over
            known = rows_without_null(keys)
            batch, keys = batch.take(pa.array(known)), keys.take(pa.array(known))
        if not batch.num_rows:
            return
        places = state.place(keys if self.time is None else keys.append_column(FROM, batch.column(self.time)))
        for name in self.kept:
            state.put(name, places, batch.column(name))
        if self.time is not None:
            self._end_versions(state, keys, int(numbers_of(batch.column(self.time)).min()))

    def on_time(
        self,
        clock: TimerClock,
        time: int,
        state: StateTable,
        tables: Mapping[str, StateTable],
        collector: TableCollector,
    ) -> None:
        self._forget(state, minimum_of(collector))

    def on_checkpoint(self, state: StateTable, collector: TableCollector) -> None:
        """No join needs an earlier version now, so what is kept does not depend on where the input was cut into waves."""
        if self.time is not None:
            self._forget(state, minimum_of(collector))

    def _forget(self, state: StateTable, minimum: int) -> None:
        if minimum != NEVER:
            state.forget(state.due(UNTIL, self.forgotten_until(minimum)))

    def forgotten_until(self, minimum: int) -> int:
        """Versions that end up to this time are forgotten at this watermark: no row in time can meet them, and joins have
        emitted those that no row has met.
        """
        return minimum - self.history - self.lateness - 1

    def _end_versions(self, state: StateTable, keys: pa.RecordBatch, since: int) -> None:
        """Let each version of these keys end where the next one begins. None begins before `since` that was not there."""
        _, known = distinct(keys, self.side.key)
        codes, places = state.matches(known, nulls=True)
        near = state_times(state, UNTIL, places) > since
        codes, places = codes[near], places[near]
        times = state_times(state, FROM, places)
        order = np.lexsort((times, codes))
        codes, places, times = codes[order], places[order], times[order]
        ends = np.append(times[1:], ALWAYS)
        ends[np.append(codes[1:] != codes[:-1], True)] = ALWAYS
        changed = ends != state_times(state, UNTIL, places)
        state.put(UNTIL, places[changed], ends[changed].view("datetime64[us]"))


def versions_at(
    table: TableOfStream, state: StateTable, codes: Array, known: pa.RecordBatch, times: Array | None
) -> Array:
    """For each row, the place in the table of the version that is valid at its time; of the newest one if `times` is None. -1
    where there is none. `codes` are the rows' keys among the `known` ones.
    """
    if not len(codes):
        return np.zeros(0, np.int64)
    found, places = state.matches(known)
    if table.time is None or times is None:
        newest = np.full(known.num_rows, -1, np.int64)
        if table.time is not None:
            last = state_times(state, UNTIL, places) == ALWAYS
            found, places = found[last], places[last]
        newest[found] = places
        return newest[codes]
    begins = state_times(state, FROM, places)
    near = (begins <= times.max()) & (state_times(state, UNTIL, places) > times.min())
    found, places, begins = found[near], places[near], begins[near]
    rows = matching.as_of(codes.astype(np.int64), times, found, begins)
    return np.where(rows < 0, -1, places[rows]) if len(places) else rows
