"""Stream with tables: each row meets, in each table, the version of its key that is valid at its time.

A row waits until the watermark is beyond its time + the lateness of the tables: then no table can get a version that is valid
at that time. It is late if the watermark of its own partition is beyond its time + `lateness`, which is at most the history of
the tables: then its version may be forgotten. Without event time, a row meets the newest version that there is when it arrives.

The result of a row has the watermark of the row's own partition, or the row's time + the lateness of the tables if that is later:
windows behind may close up to there while a row waits. So it makes no difference whether a row has waited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event, Instance, Record
from streamwork.components.collector import TimerClock
from streamwork.components.columns import distinct, rows_without_null
from streamwork.components.made import make_record
from streamwork.components.table_operator import NEVER, Rows, StateTable, TableCollector, TableOperator
from streamwork.components.times import BEGINNING
from streamwork.errors import WrongUse
from streamwork.operators.joins.columns import (
    WATERMARK,
    Array,
    batch_of,
    former_names,
    in_pieces,
    kept_fields,
    keys_of,
    looked_up,
    put_watermarks,
    state_times,
    taken,
)
from streamwork.operators.joins.kinds import JoinKind
from streamwork.operators.joins.numbering import NUMBER, Numbering
from streamwork.operators.joins.result import LEFT, Result, Side
from streamwork.operators.joins.table import FROM, TableOfStream, versions_at
from streamwork.operators.late import LATE, late_type, take_in_time
from streamwork.operators.times import as_times, minimum_of, numbers_of

Column = Callable[[str], pa.Array]


class Waiting(Record):
    """The sub-key of a row that waits for its time."""

    join_time: datetime = BEGINNING
    join_number: int = 0
    """Different for each row of one key and time."""


class TableJoin(TableOperator[Any, Any, Any]):
    """Joins rows with tables on arrival."""

    keeps_key = True

    def __init__(self, left: Side, tables: Sequence[TableOfStream], kind: JoinKind, result: Result) -> None:
        self._left = left
        self._tables = {table.side.name: table for table in tables}
        self._kind = kind
        self._result = result
        self.ports = {table.side.name: table.side.event for table in tables}

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return self._left.event, None, self._result.event

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        keys = keys_of(rows.batch, self._left.key, self._left.key)
        found = self._met(keys, None, tables)
        for matched, piece in self._joined(rows.batch.column, found, tables):
            collector.emit_batch(piece, rows=matched)

    def _met(self, keys: pa.RecordBatch, times: Array | None, tables: Mapping[str, StateTable]) -> list[Array]:
        """For each table, the place of the version that each row meets; -1 where there is none."""
        codes, known = distinct(keys, keys.schema.names)
        found: list[Array] = []
        for name, table in self._tables.items():
            asked = keys_of(known, known.schema.names, table.side.key)
            found.append(versions_at(table, tables[name], codes, asked, times))
        return found

    def _joined(
        self, column: Column, found: list[Array], tables: Mapping[str, StateTable]
    ) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """(the rows that are emitted, their result), piece by piece. `column` has the fields of the left side."""
        rows = np.arange(len(found[0]))
        if not self._kind.keeps_left:
            rows = np.flatnonzero(np.all([places >= 0 for places in found], axis=0))
        sides = list(self._tables.values())

        def result(some: Array) -> pa.RecordBatch:
            columns, chosen = {}, rows[some]
            for field, source in self._result.fields.items():
                if source.side == LEFT:
                    columns[field] = taken(column(source.field), chosen)
                    continue
                table, places = sides[source.side - 1], found[source.side - 1][chosen]
                name = FROM if source.field == table.time else source.field
                columns[field] = looked_up(tables[table.side.name], name, places)
            return batch_of(self._result.event, columns)

        for some, piece in in_pieces(result, len(rows)):
            yield rows[some], piece


class TimedTableJoin(TableJoin):
    """Joins rows with the versions of tables that are valid at their time."""

    sub_key: type[Record] | None = Waiting
    is_numbered = True
    judges_lateness = True
    clocks = frozenset((TimerClock.EVENT,))

    def __init__(
        self,
        left: Side,
        tables: Sequence[TableOfStream],
        kind: JoinKind,
        result: Result,
        time: str,
        lateness: int,
    ) -> None:
        """`time` is the time field of the left side; `lateness` is microseconds."""
        super().__init__(left, tables, kind, result)
        self._time = time
        self._lateness = lateness
        self._wait = max(table.lateness for table in tables)
        self._late = late_type(left.event)
        self.channels = {LATE: self._late}
        self.late_channels = frozenset(self.channels)
        used = dict.fromkeys(result.of_side(LEFT))
        self._kept = [name for name in used if name not in left.key and name != time]
        for name in {"join_time", NUMBER, WATERMARK} & {*left.key, *self._kept}:
            raise WrongUse(
                "SW-KEY-CLASH",
                f"{left.event.__name__}.{name} has the name of a column of the join's state",
                "rename it before the join, with map",
            )
        self._record = make_record("WaitingRow", self._fields(), former_names(left.event))
        self._numbering = Numbering()

    def _fields(self) -> dict[str, Any]:
        """Those of the record."""
        return {**kept_fields(self._left.event, self._kept), WATERMARK: (datetime | None, None)}

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return self._left.event, self._record, self._result.event

    def setup_instance(self, instance: Instance) -> None:
        self._numbering = Numbering()

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        batch, times, minimum = rows.batch, numbers_of(rows.batch.column(self._time)), minimum_of(collector)
        waits = np.zeros(len(times), bool)
        waits[take_in_time(rows, times + self._lateness, self._late, collector, inclusive=False)] = True
        if minimum != NEVER:
            ready = np.flatnonzero(waits & (times + self._wait < minimum))
            waits[ready] = False
            if len(ready):
                some = batch.take(pa.array(ready))
                found = self._met(keys_of(some, self._left.key, self._left.key), times[ready], tables)
                for matched, piece in self._joined(some.column, found, tables):
                    collector.emit_batch(piece, rows=ready[matched])
                self._remember(found, tables, state)
        waiting = np.flatnonzero(waits)
        if len(waiting):
            self._keep(batch.take(pa.array(waiting)), times[waiting], rows.watermarks[waiting], state)

    def on_time(
        self,
        clock: TimerClock,
        time: int,
        state: StateTable,
        tables: Mapping[str, StateTable],
        collector: TableCollector,
    ) -> None:
        due = self._due(state, time - self._wait - 1)
        if len(due):
            self._release(due, state, tables, collector)

    def _due(self, state: StateTable, until: int) -> Array:
        """The rows that wait for a time up to `until`."""
        return state.due("join_time", until)

    def _release(
        self, due: Array, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        """Emit rows that have waited long enough."""
        times, watermarks = state_times(state, "join_time", due), state_times(state, WATERMARK, due)
        keys = state.keys(due).select(list(self._left.key))

        def column(field: str) -> pa.Array:
            if field in self._left.key:
                return keys.column(field)
            return state.values("join_time" if field == self._time else field, due)

        found = self._met(keys, times, tables)
        for rows, piece in self._joined(column, found, tables):
            collector.emit_batch(piece, times=times[rows] + self._wait + 1, watermarks=watermarks[rows])
        state.forget(due)
        self._remember(found, tables, state)

    def _remember(self, found: list[Array], tables: Mapping[str, StateTable], state: StateTable) -> None:
        """Rows have met these versions."""

    def _keep(self, batch: pa.RecordBatch, times: Array, watermarks: Array, state: StateTable) -> None:
        """Let rows wait for their time."""
        keys = keys_of(batch, self._left.key, self._left.key)
        if not self._kind.keeps_left:
            known = rows_without_null(keys)
            batch, keys = batch.take(pa.array(known)), keys.take(pa.array(known))
            times, watermarks = times[known], watermarks[known]
        places = state.place(self._waiting_keys(keys, times, self._numbering.take(len(times), state)))
        put_watermarks(state, places, watermarks)
        for name in self._kept:
            state.put(name, places, batch.column(name))

    def _waiting_keys(self, keys: pa.RecordBatch, times: Array, numbers: pa.Array) -> pa.RecordBatch:
        """The keys and sub-keys of rows that wait."""
        return keys.append_column("join_time", as_times(times)).append_column(NUMBER, numbers)
