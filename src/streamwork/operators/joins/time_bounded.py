"""Stream with stream, within a bound of time.

Two rows match if their keys are equal and their times are at most `within` apart. A pair is emitted when its second row
arrives. A row is kept until the watermark reaches its time + 2 within + lateness: until then a row in time may match it. Then
it is forgotten, and emitted without a match if the kind of join asks for it.

Which of two rows comes second depends on where the input is cut. So a pair has the later one of their watermarks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event, Instance, Record
from streamwork.components.collector import TimerClock
from streamwork.components.columns import distinct, rows_without_null
from streamwork.components.hashing import distinct_numbers
from streamwork.components.made import make_record
from streamwork.components.table_operator import Rows, StateTable, TableCollector, TableOperator
from streamwork.components.times import BEGINNING
from streamwork.operators.joins import matching
from streamwork.operators.joins.columns import (
    WATERMARK,
    Array,
    batch_of,
    former_names,
    in_pieces,
    kept_fields,
    keys_of,
    put_watermarks,
    state_times,
    taken,
)
from streamwork.operators.joins.kinds import JoinKind
from streamwork.operators.joins.numbering import Numbering
from streamwork.operators.joins.result import LEFT, Result, Side
from streamwork.operators.late import LATE, late_type, take_in_time
from streamwork.operators.times import as_times, numbers_of

RIGHT = 1
RIGHT_PORT = "right"
LATE_RIGHT = "late-right"
PREFIXES = ("left_", "right_")


class Kept(Record):
    """The sub-key of a row that may still find a match."""

    join_right: bool = False
    join_time: datetime = BEGINNING
    join_number: int = 0
    """Different for each row of one key, side and time."""


def kept_keys(keys: pa.RecordBatch, right: bool, times: pa.Array, numbers: pa.Array) -> pa.RecordBatch:
    """The keys of the state, for rows of one side: these keys, and their sub-keys."""
    sub_keys = [pa.array(np.full(keys.num_rows, right)), times, numbers]
    names = [*keys.schema.names, *Kept.__struct_fields__]
    return pa.RecordBatch.from_arrays([*keys.columns, *sub_keys], names=names)


class TimeBoundedJoin(TableOperator[Any, Any, Any]):
    """Joins the rows of two ports within a bound of time."""

    sub_key = Kept
    is_numbered = True
    judges_lateness = True
    clocks = frozenset((TimerClock.EVENT,))

    def __init__(
        self,
        sides: tuple[Side, Side],
        times: tuple[str, str],
        kind: JoinKind,
        result: Result,
        within: int,
        lateness: int,
    ) -> None:
        """`times` are the time fields of both sides; `within` and `lateness` are microseconds."""
        self._sides = sides
        self._times = times
        self._kind = kind
        self._result = result
        self._within = within
        self._lateness = lateness
        self._outer = (kind.keeps_left, kind.keeps_right)
        self._late = tuple(late_type(side.event) for side in sides)
        self.channels = {LATE: self._late[LEFT], LATE_RIGHT: self._late[RIGHT]}
        self.late_channels = frozenset(self.channels)
        self.ports = {RIGHT_PORT: sides[RIGHT].event}
        # The key and the time are in the state's key; what the result does not have is not kept.
        self._columns = tuple(
            [f for f in dict.fromkeys(result.of_side(n)) if f not in side.key and f != times[n]]
            for n, side in enumerate(sides)
        )
        fields: dict[str, Any] = {"matched": (bool, False)} if any(self._outer) else {}
        fields[WATERMARK] = (datetime | None, None)
        former: dict[str, str] = {}
        for number, side in enumerate(sides):
            fields |= kept_fields(side.event, self._columns[number], PREFIXES[number])
            former |= former_names(side.event, PREFIXES[number])
        self._record = make_record("JoinRow", fields, former)
        self.keeps_key = not kind.keeps_right or sides[LEFT].key == sides[RIGHT].key
        self._numbering = Numbering()

    def types(self) -> tuple[type[Event], type[Record], type[Event]]:
        return self._sides[LEFT].event, self._record, self._result.event

    def setup_instance(self, instance: Instance) -> None:
        self._numbering = Numbering()

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        mine = RIGHT if rows.port == RIGHT_PORT else LEFT
        batch, times, watermarks = rows.batch, numbers_of(rows.batch.column(self._times[mine])), rows.watermarks
        chances, channel = times + self._within + self._lateness, (LATE, LATE_RIGHT)[mine]
        numbers = take_in_time(rows, chances, self._late[mine], collector, channel)
        if len(numbers) < len(times):
            batch, times, watermarks = batch.take(pa.array(numbers)), times[numbers], watermarks[numbers]
        keys = keys_of(batch, self._sides[mine].key, self._sides[LEFT].key)
        codes, known = distinct(keys, self._sides[LEFT].key)
        found, places = self._candidates(state, known, 1 - mine, times)
        pairs, others = matching.within(
            codes.astype(np.int64), times, found, state_times(state, "join_time", places), self._within
        )
        matches = places[others]

        def joined(some: Array) -> pa.RecordBatch:
            columns = self._matched(batch, pairs[some], mine, state, matches[some])
            return batch_of(self._result.event, columns)

        for some, piece in in_pieces(joined, len(pairs)):
            marks = state_times(state, WATERMARK, matches[some])
            collector.emit_batch(piece, rows=numbers[pairs[some]], watermarks=marks)
        if self._outer[1 - mine] and len(pairs):
            matched = distinct_numbers(matches)
            state.put("matched", matched, np.ones(len(matched), bool))
        self._keep(batch, keys, times, watermarks, mine, state, pairs)

    def on_time(
        self,
        clock: TimerClock,
        time: int,
        state: StateTable,
        tables: Mapping[str, StateTable],
        collector: TableCollector,
    ) -> None:
        wait = 2 * self._within + self._lateness
        due = state.due("join_time", time - wait)
        if len(due) and any(self._outer):
            right = state.numbers("join_right", due)
            lonely = ~state.numbers("matched", due) & np.where(right, self._outer[RIGHT], self._outer[LEFT])
            alone, right = due[lonely], right[lonely]
            times = state_times(state, "join_time", alone) + wait

            def unmatched(some: Array) -> pa.RecordBatch:
                return batch_of(self._result.event, self._unmatched(state, alone[some], right[some]))

            for some, piece in in_pieces(unmatched, len(alone)):
                collector.emit_batch(piece, times=times[some])
        state.forget(due)

    def _candidates(self, state: StateTable, known: pa.RecordBatch, side: int, times: Array) -> tuple[Array, Array]:
        """(key, place) of the rows of a side that may match: those of these keys, in the range of these times."""
        if not len(times):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        found, places = state.matches(known)
        kept = state_times(state, "join_time", places)
        near = (kept >= times.min() - self._within) & (kept <= times.max() + self._within)
        near &= state.numbers("join_right", places) == (side == RIGHT)
        return found[near], places[near]

    def _matched(
        self, batch: pa.RecordBatch, rows: Array, mine: int, state: StateTable, places: Array
    ) -> dict[str, pa.Array]:
        """The columns of pairs: of rows of a batch, and of places of the state."""
        columns = {}
        for name, source in self._result.fields.items():
            if source.side == mine:
                columns[name] = taken(batch.column(source.field), rows)
            else:
                columns[name] = self._kept_column(state, places, source.side, source.field)
        return columns

    def _unmatched(self, state: StateTable, places: Array, right: Array) -> dict[str, pa.Array]:
        """The columns of rows that found no match: those of the other side are null."""
        columns = {}
        for name, source in self._result.fields.items():
            column = self._kept_column(state, places, source.side, source.field)
            side = self._sides[source.side]
            other = self._sides[1 - source.side]
            shared = source.field in side.key and other.key[side.key.index(source.field)] == source.field
            if not shared and (source.field == self._times[source.side] or source.field in side.key):
                rows = np.arange(len(places))
                column = taken(column, np.where(right == (source.side == RIGHT), rows, -1))
            columns[name] = column
        return columns

    def _kept_column(self, state: StateTable, places: Array, side: int, field: str) -> pa.Array:
        """A field of a side, at these places. The key and the time are those of the row, of either side."""
        key = self._sides[side].key
        if field in key:
            return state.values(self._sides[LEFT].key[key.index(field)], places)
        return state.values("join_time" if field == self._times[side] else f"{PREFIXES[side]}{field}", places)

    def _keep(
        self,
        batch: pa.RecordBatch,
        keys: pa.RecordBatch,
        times: Array,
        watermarks: Array,
        mine: int,
        state: StateTable,
        pairs: Array,
    ) -> None:
        """Store rows that may still find a match. One without a key is stored only to be emitted when its time is over."""
        rows = np.arange(len(times)) if self._outer[mine] else rows_without_null(keys)
        if not len(rows):
            return
        matched = np.zeros(len(times), bool)
        matched[pairs] = True
        if len(rows) < len(times):
            batch, keys = batch.take(pa.array(rows)), keys.take(pa.array(rows))
            times, watermarks, matched = times[rows], watermarks[rows], matched[rows]
        numbers = self._numbering.take(len(rows), state)
        places = state.place(kept_keys(keys, mine == RIGHT, as_times(times), numbers))
        put_watermarks(state, places, watermarks)
        for field in self._columns[mine]:
            state.put(f"{PREFIXES[mine]}{field}", places, batch.column(field))
        if self._outer[mine]:
            state.put("matched", places, matched)
