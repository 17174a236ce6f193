"""`EachEvent`: windows that emit with each event, or with those that a trigger chooses."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streamwork.components.table_operator import Rows, StateTable, TableCollector
from streamwork.operators.aggregates.columns import Array, Groups, take
from streamwork.operators.times import as_times, minimum_of
from streamwork.operators.windows.grouping import key_codes
from streamwork.operators.windows.kinds import Assigner, Session
from streamwork.operators.windows.merging_sessions import Sessions
from streamwork.operators.windows.operators import TakesRows, emit_late
from streamwork.operators.windows.plan import END, START, Emission
from streamwork.operators.windows.running import run


class EachEvent(TakesRows):
    """Emits the results of a window with each event, or with those that a trigger chooses."""

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        plan, minimum = self.plan, self.minimum(collector)
        rows = self._with_watermarks(rows, collector)
        times, judged = self.reducer.judged(rows, self._now(collector), minimum)
        watermarks = self.reducer.watermarks(rows, minimum)
        places = np.arange(rows.batch.num_rows) if judged is None else np.flatnonzero(~judged.late)
        batch = rows.batch.take(pa.array(places))
        emit_late(plan, rows.batch, judged, collector)
        if not len(places):
            return
        if isinstance(plan.window, Session):
            for results, at in self._sessions(batch, times[places], state):
                self._emit(results, places[at], np.zeros(len(at), bool), collector)
        else:
            self._pairs(batch, times[places], watermarks[places], state, collector, places)

    def _emit(self, results: pa.RecordBatch, rows: Array, corrects: Array, collector: TableCollector) -> None:
        trigger = self.plan.trigger
        if trigger is not None:
            fired = trigger.fires_batch(results, self.plan.to) | corrects
            results, rows = results.filter(pa.array(fired)), rows[fired]
        if len(rows):
            collector.emit_batch(results, rows=rows)

    def _pairs(
        self,
        batch: pa.RecordBatch,
        times: Array,
        watermarks: Array,
        state: StateTable,
        collector: TableCollector,
        places: Array,
    ) -> None:
        """Windows that an event cannot merge: each pair of an event and a window has a result."""
        plan, windows = self.plan, self.windows
        pairs = self.reducer.pairs(batch, times, watermarks)
        events = batch.take(pa.array(pairs.rows))
        keys = self.reducer.keys(events).append_column(START, as_times(pairs.starts))
        if isinstance(plan.window, Assigner):
            keys = keys.append_column(END, as_times(pairs.ends))
        found = run(plan, events, keys, state)
        known = dict(zip(events.schema.names, events.columns, strict=True))
        results = plan.results({**known, START: as_times(pairs.starts), END: as_times(pairs.ends)}, found.parts)
        old = found.found >= 0
        corrects = np.zeros(len(pairs.rows), bool)
        if plan.emission is Emission.CLOSE and plan.lateness > 0:
            corrects = pairs.ends <= minimum_of(collector)
        self._emit(results, places[pairs.rows], corrects, collector)
        lasts = found.groups.lasts
        windows.store(state, found.keys, pairs.ends[lasts], ~old, take(found.parts, lasts), corrects[lasts])

    def _sessions(self, batch: pa.RecordBatch, times: Array, state: StateTable) -> list[tuple[pa.RecordBatch, Array]]:
        """(results, the rows that they are for): the first event of every key, then the second, and so on. Each may join sessions
        that others were in.
        """
        assert isinstance(self.windows, Sessions)
        plan, found = self.plan, []
        for rows in by_rank(self.reducer.keys(batch)):
            some = batch.take(pa.array(rows))
            numbers, places = self.windows.joined(self.reducer.single_sessions(some, times[rows]), state)
            mine = places[numbers]
            known = dict(zip(some.schema.names, some.columns, strict=True))
            known |= {START: state.values(START, mine), END: as_times(self.windows.ends(state, mine))}
            found.append((plan.results(known, plan.stored(state, mine)), rows))
        return found


def by_rank(keys: pa.RecordBatch) -> list[Array]:
    """The rows that are the first of their key, those that are the second, and so on; each in ascending order."""
    rank = ranks(Groups(*key_codes(keys)))
    order = np.argsort(rank, kind="stable")
    return np.split(order, np.cumsum(np.bincount(rank))[:-1])


def ranks(groups: Groups) -> Array:
    """For each row, how many of its group come before it."""
    found = np.empty(len(groups.codes), np.int64)
    found[groups.order] = np.arange(len(groups.codes)) - np.repeat(groups.starts, groups.sizes)
    return found
