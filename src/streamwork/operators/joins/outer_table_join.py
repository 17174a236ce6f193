"""Stream with a table, right and full: versions that no row has met are emitted when they are over.

A version is over when the watermark is beyond its end + the lateness of the join or of the table, the longer one: then it
keeps its end, and no row in time can have a time at which it was valid. The newest version of a key has no end, so it is not
over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.collector import TimerClock
from streamwork.components.field_types import LAST_TIME
from streamwork.components.hashing import distinct_numbers
from streamwork.components.made import make_record
from streamwork.components.schema import arrow_schema
from streamwork.components.table_operator import NEVER, StateTable, TableCollector
from streamwork.operators.joins.columns import (
    Array,
    batch_of,
    former_names,
    in_pieces,
    keys_of,
    state_times,
)
from streamwork.operators.joins.kinds import JoinKind
from streamwork.operators.joins.result import LEFT, Result, Side
from streamwork.operators.joins.table import ALWAYS, FROM, UNTIL, TableOfStream
from streamwork.operators.joins.table_join import TimedTableJoin
from streamwork.operators.joins.time_bounded import Kept, kept_keys
from streamwork.operators.times import as_times, minimum_of

END = "join_until"


class OuterTableJoin(TimedTableJoin):
    """Joins rows with one table, and emits the versions that no row has met.

    Its state has the rows that wait, and a row for each version that was met, or was emitted because it was over: `join_right`
    is true, `join_time` is the start of the version, `join_until` its end when it is over. It is kept as long as the version
    is, so that a version is emitted once, also after a restart.
    """

    sub_key = Kept

    def __init__(
        self,
        left: Side,
        tables: Sequence[TableOfStream],
        kind: JoinKind,
        result: Result,
        time: str,
        lateness: int,
    ) -> None:
        super().__init__(left, tables, kind, result, time, lateness)
        (self._table,) = tables
        self._record = make_record("OuterRow", self._fields(), former_names(left.event))

    def _fields(self) -> dict[str, Any]:
        return {**super()._fields(), END: (datetime, LAST_TIME)}

    def on_time(
        self,
        clock: TimerClock,
        time: int,
        state: StateTable,
        tables: Mapping[str, StateTable],
        collector: TableCollector,
    ) -> None:
        super().on_time(clock, time, state, tables, collector)
        rest, before = max(self._lateness, self._wait), minimum_of(collector)
        versions = tables[self._table.side.name]
        over = versions.due(UNTIL, time - rest - 1)
        if before != NEVER:  # the others were over before
            over = over[state_times(versions, UNTIL, over) >= before - rest]
        marks = state.find(self._mark_keys(versions, over))
        met = marks >= 0
        known = np.zeros(len(over), bool)
        known[met] = state_times(state, END, marks[met]) != ALWAYS
        unmet, new = over[~met], over[~known]
        self._emit_unmet(unmet, state_times(versions, UNTIL, unmet) + rest + 1, versions, collector)
        state.put(END, state.place(self._mark_keys(versions, new)), versions.numbers(UNTIL, new))

    def on_checkpoint(self, state: StateTable, collector: TableCollector) -> None:
        """Forget what was kept about versions that the table forgets now."""
        if (minimum := minimum_of(collector)) != NEVER:
            state.forget(state.due(END, self._table.forgotten_until(minimum)))

    def _due(self, state: StateTable, until: int) -> Array:
        due = super()._due(state, until)
        return due[~state.numbers("join_right", due)]

    def _remember(self, found: list[Array], tables: Mapping[str, StateTable], state: StateTable) -> None:
        places = distinct_numbers(found[0][found[0] >= 0])
        state.place(self._mark_keys(tables[self._table.side.name], places))

    def _waiting_keys(self, keys: pa.RecordBatch, times: Array, numbers: pa.Array) -> pa.RecordBatch:
        return kept_keys(keys, False, as_times(times), numbers)

    def _mark_keys(self, versions: StateTable, places: Array) -> pa.RecordBatch:
        """The keys and sub-keys under which the join remembers versions."""
        keys = keys_of(versions.keys(places), self._table.side.key, self._left.key)
        return kept_keys(keys, True, versions.values(FROM, places), pa.array(np.zeros(len(places), np.int64)))

    def _emit_unmet(self, places: Array, times: Array, versions: StateTable, collector: TableCollector) -> None:
        side, schema = self._table.side, arrow_schema(self._result.event)

        def result(some: Array) -> pa.RecordBatch:
            columns = {}
            for name, source in self._result.fields.items():
                field = source.field
                if source.side == LEFT:
                    place = self._left.key.index(field) if field in self._left.key else None
                    if place is None or side.key[place] != field:
                        columns[name] = pa.nulls(len(some), schema.field(name).type)
                        continue
                columns[name] = versions.values(FROM if field == self._table.time else field, places[some])
            return batch_of(self._result.event, columns)

        for some, piece in in_pieces(result, len(places)):
            collector.emit_batch(piece, times=times[some])
