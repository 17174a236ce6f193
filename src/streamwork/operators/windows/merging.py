"""`Windows`: open windows as a table of state. Partial aggregates are merged into them; they emit, and go when they close.

A call computes first and stores last, so one that fails has changed nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.table_operator import NEVER, StateTable, TableCollector
from streamwork.components.times import microseconds
from streamwork.operators.aggregates.columns import Array, Groups, Parts, take
from streamwork.operators.windows.grouping import compact, grouped
from streamwork.operators.windows.kinds import Assigner
from streamwork.operators.windows.plan import CLOSES, END, Emission, WindowPlan, numbers_of, times_of


class Windows:
    """Fixed and sliding windows, and a user's own."""

    def __init__(self, plan: WindowPlan) -> None:
        self.plan = plan
        self._corrects = plan.emission is Emission.CLOSE and plan.lateness > 0
        self._changed = np.zeros(
            0, bool
        )  # by place, since the last checkpoint, where these emit; empty after each checkpoint

    def merge(
        self, partials: pa.RecordBatch, state: StateTable, collector: TableCollector, source: Array | None = None
    ) -> None:
        """Add partial aggregates to their windows. One whose end was reached before emits at once: a correction, or its first
        result. That comes from the row of the partial: `source`, or its own place.
        """
        plan = self.plan
        keys = partials.select([*plan.state_key, *plan.sub_key_fields])
        groups, (at, places), new = located(keys, state.find(keys))
        parts, ends = plan.parts_of(partials), numbers_of(partials.column(END))
        rows = np.arange(len(ends)) if source is None else source
        if groups is not None:
            parts, lasts = plan.combined(parts, groups), groups.lasts
            keys, ends, rows = keys.take(pa.array(lasts)), ends[lasts], rows[lasts]
        merged = plan.merged(plan.stored(state, places), take(parts, at)) if len(at) else take(parts, at)
        fresh = take(parts, new)
        reached = ends <= minimum_of(collector) if self._corrects else np.zeros(len(ends), bool)
        made = []
        for some, mine in ((at, merged), (new, fresh)):
            if (chosen := np.flatnonzero(reached[some])).size:
                which = some[chosen]
                made.append((self._results(keys.take(pa.array(which)), ends[which], take(mine, chosen)), rows[which]))
        if len(at):
            plan.store(state, places, merged)
            self._note(places)
        if len(new):
            self.store(state, keys.take(pa.array(new)), ends[new], np.ones(len(new), bool), fresh, reached[new])
        for results, source in made:
            order = np.argsort(source, kind="stable")
            collector.emit_batch(results.take(pa.array(order)), rows=source[order])

    def store(
        self, state: StateTable, keys: pa.RecordBatch, ends: Array, is_new: Array, parts: Parts, has_emitted: Array
    ) -> None:
        """Store windows, of which some are new, and some have emitted."""
        plan = self.plan
        places = state.place(keys)
        if not isinstance(plan.window, Assigner):
            state.put(END, places[is_new], ends[is_new].view("datetime64[us]"))
        if plan.due == CLOSES:
            closes = np.where(has_emitted, ends + plan.lateness, self.closing(ends))
            state.put(CLOSES, places[is_new], closes[is_new].view("datetime64[us]"))
        plan.store(state, places, parts)
        self._note(places)

    def closing(self, ends: Array) -> Array:
        """When there is something to do first for windows with these ends."""
        return ends if self.plan.emission is Emission.CLOSE else ends + self.plan.lateness

    def ends(self, state: StateTable, places: Array) -> Array:
        """When windows end."""
        if isinstance(self.plan.window, Assigner):
            return numbers_of(state.values(END, places))
        return np.asarray(state.numbers(END, places).view(np.int64))

    def on_time(self, time: int, state: StateTable, collector: TableCollector) -> None:
        """Emit windows that end at or before this time, and forget those that no event can reach."""
        plan = self.plan
        places = state.due(plan.due, time)
        if not len(places):
            return
        due = state.numbers(plan.due, places).view(np.int64)
        emits = np.ones(len(places), bool)
        if plan.emission is Emission.EVENT:
            emits[:] = False
        elif plan.emission is Emission.EPOCH:
            emits = self._is_changed(places)
        elif self._corrects:
            emits = due == self.ends(state, places)
        if emits.any():
            collector.emit_batch(self.results_at(state, places[emits]), times=due[emits])
        over = np.ones(len(places), bool)
        if self._corrects:
            closes = due + plan.lateness
            over = ~emits | (closes <= time)
            state.put(plan.due, places[~over], closes[~over].view("datetime64[us]"))
        self.forget(state, places[over])

    def on_checkpoint(self, state: StateTable, collector: TableCollector) -> None:
        """Emit windows that have changed since the last checkpoint."""
        if self.plan.emission is Emission.EPOCH and len(places := np.flatnonzero(self._changed)):
            self._changed[:] = False
            collector.emit_batch(self.results_at(state, places))

    def next_time(self, state: StateTable) -> int | None:
        return state.earliest(self.plan.due)

    def forget(self, state: StateTable, places: Array) -> None:
        state.forget(places)
        known = places[places < len(self._changed)]
        self._changed[known] = False

    def results_at(self, state: StateTable, places: Array) -> pa.RecordBatch:
        """The results of windows as they are now."""
        return self._results(state.keys(places), self.ends(state, places), self.plan.stored(state, places))

    def _results(self, keys: pa.RecordBatch, ends: Array, parts: Parts) -> pa.RecordBatch:
        known: dict[str, Any] = dict(zip(keys.schema.names, keys.columns, strict=True))
        return self.plan.results({**known, END: times_of(ends)}, parts)

    def _note(self, places: Array) -> None:
        if self.plan.emission is Emission.EPOCH and len(places):
            if (size := int(places.max()) + 1) > len(self._changed):
                self._changed = np.append(self._changed, np.zeros(2 * size - len(self._changed), bool))
            self._changed[places] = True

    def _is_changed(self, places: Array) -> Array:
        found = np.zeros(len(places), bool)
        known = places < len(self._changed)
        found[known] = self._changed[places[known]]
        return found


def minimum_of(collector: TableCollector) -> int:
    """The watermark of the instance before the wave: windows whose end it has reached have emitted."""
    return NEVER if collector.watermark is None else microseconds(collector.watermark)


def located(keys: pa.RecordBatch, places: Array) -> tuple[Groups | None, tuple[Array, Array], Array]:
    """(groups of rows with one key: None if each row is one; (group, place) of those that the state has; those that it has not)

    `places` are those of the rows, -1 where the state has none.
    """
    known = places >= 0
    rows = np.flatnonzero(known)
    strange = np.flatnonzero(~known)
    fresh = grouped(keys.take(pa.array(strange)), []) if len(strange) else Groups(strange, 0)
    distinct = np.unique(places[rows]) if len(rows) else rows
    if fresh.count == len(strange) and len(distinct) == len(rows):
        return None, (rows, places[rows]), strange
    codes = np.empty(len(places), np.int64)
    codes[rows] = np.searchsorted(distinct, places[rows])
    codes[strange] = len(distinct) + fresh.codes
    groups = compact(codes, len(distinct) + fresh.count)
    return groups, (np.arange(len(distinct)), distinct), np.arange(len(distinct), groups.count)
