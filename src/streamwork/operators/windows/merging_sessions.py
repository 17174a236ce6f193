"""`Sessions`: open sessions as a table of state. A partial aggregate joins all sessions of its key that it overlaps or touches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamwork.components.table_operator import StateTable, TableCollector
from streamwork.operators.aggregates.columns import Array, Parts, stacked, take
from streamwork.operators.aggregates.ordered import highest_order, renumbered
from streamwork.operators.times import as_times, numbers_of
from streamwork.operators.windows.assign import sessions
from streamwork.operators.windows.grouping import key_codes
from streamwork.operators.windows.kinds import Session
from streamwork.operators.windows.merging import Windows
from streamwork.operators.windows.plan import CLOSES, END, START, Emission, keys_of
from streamwork.operators.windows.reducer import bounds


class Sessions(Windows):
    """An event in time may join a session until the minimum reaches its end + gap + lateness: then it emits, once."""

    def merge(
        self, partials: pa.RecordBatch, state: StateTable, collector: TableCollector, source: Array | None = None
    ) -> None:
        self.joined(partials, state)

    def joined(self, partials: pa.RecordBatch, state: StateTable) -> tuple[Array, Array]:
        """(for each partial, the number of the session that has it now; the places of these sessions)"""
        plan = self.plan
        codes, count = key_codes(partials.select(list(plan.state_key)))
        firsts = np.zeros(count, np.int64)
        firsts[codes[::-1]] = np.arange(len(codes))[::-1]
        owners, places = state.matches(keys_of(partials, plan.state_key, firsts), nulls=True)
        found, given = plan.stored(state, places), plan.parts_of(partials)
        given = self._later(given, codes, found, owners, count)
        starts = np.concatenate((numbers_of(state.values(START, places)), numbers_of(partials.column(START))))
        ends = np.concatenate((self.ends(state, places), numbers_of(partials.column(END))))
        groups = sessions(np.concatenate((owners, codes)), starts, ends)
        changed = np.zeros(groups.count, bool)
        changed[groups.codes[len(places) :]] = True
        rows = np.flatnonzero(changed[groups.codes])
        numbers = np.cumsum(changed) - 1
        groups = type(groups)(numbers[groups.codes[rows]], int(changed.sum()))
        starts, ends = starts[rows], ends[rows]
        low, high = bounds(groups, starts, ends)
        parts = plan.combined(take(stacked([found, given]), rows), groups)
        keys = keys_of(partials, plan.state_key, firsts[np.concatenate((owners, codes))[rows][groups.firsts]])
        old = rows < len(places)
        moved = places[rows[old]][starts[old] != low[groups.codes[old]]]
        self.forget(state, moved)
        mine = state.place(keys.append_column(START, as_times(low)))
        state.put(END, mine, high.view("datetime64[us]"))
        state.put(CLOSES, mine, self.closing(high).view("datetime64[us]"))
        plan.store(state, mine, parts)
        return groups.codes[~old], mine

    def closing(self, ends: Array) -> Array:
        window = self.plan.window
        assert isinstance(window, Session)
        return ends + window.length + self.plan.lateness

    def _later(self, given: Parts, codes: Array, found: Parts, owners: Array, count: int) -> Parts:
        """The partials with order numbers behind those of all sessions of their keys."""
        aggregates = self.plan.aggregates
        kept, lowest = highest_order(found, aggregates), self._lowest(given)
        if kept is None or lowest is None:
            return given
        base = np.zeros(count, np.int64)
        np.maximum.at(base, owners, kept + 1)
        return renumbered(given, aggregates, base[codes] - lowest)

    def _lowest(self, given: Parts) -> int | None:
        """The smallest order number of partials."""
        lows = []
        for one in self.plan.aggregates:
            if one.order is not None:
                column = given[one.order]
                numbers = column.flatten().to_numpy() if isinstance(column, pa.Array) else column
                lows.append(int(numbers.min()))
        return min(lows, default=None)

    def on_time(self, time: int, state: StateTable, collector: TableCollector) -> None:
        places = state.due(CLOSES, time)
        if len(places):
            if self.plan.emission is Emission.CLOSE:
                times = state.numbers(CLOSES, places).view(np.int64)
                collector.emit_batch(self.results_at(state, places), times=times)
            self.forget(state, places)
