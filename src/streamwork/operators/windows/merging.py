"""`Windows`: open windows as a table of state. Partial aggregates are merged into them; they emit, and go when they close.

A call computes first and stores last, so one that fails has changed nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.table_operator import StateTable, TableCollector
from streamwork.operators.aggregates.columns import Array, Groups, Parts, take
from streamwork.operators.times import as_times, minimum_of, numbers_of
from streamwork.operators.windows.changed import Changed
from streamwork.operators.windows.kinds import Assigner
from streamwork.operators.windows.plan import CLOSES, END, Emission, WindowPlan


class Windows:
    """Fixed and sliding windows, and a user's own."""

    def __init__(self, plan: WindowPlan) -> None:
        self.plan = plan
        self._corrects = plan.emission is Emission.CLOSE and plan.lateness > 0
        self._distinct = Distinct()
        self._changed = Changed()  # where changed windows emit before a checkpoint

    def merge(
        self, partials: pa.RecordBatch, state: StateTable, collector: TableCollector, source: Array | None = None
    ) -> None:
        """Add partial aggregates to their windows. One whose end was reached before emits at once: a correction, or its first
        result. That comes from the row of the partial: `source`, or its own place.
        """
        plan = self.plan
        keys = partials.select([*plan.state_key, *plan.sub_key_fields])
        ends = numbers_of(partials.column(END))
        rows = np.arange(len(ends)) if source is None else source
        all_places = state.place(keys)
        try:
            places, groups = self._distinct.of(all_places)
            parts = plan.parts_of(partials)
            if groups is not None:
                lasts = groups.lasts
                parts, ends, rows = plan.combined(parts, groups), ends[lasts], rows[lasts]
            due = state.numbers(plan.due, places)
            is_new = np.isnat(due)
            old = np.flatnonzero(~is_new)
            if len(old):
                merged = plan.merged(plan.stored(state, places[old]), take(parts, old))
                parts = merged if len(old) == len(places) else plan.replaced(parts, old, merged)
            reached = np.zeros(len(ends), bool)
            if self._corrects:
                # After a restart the minimum may be unknown for a while, or earlier. The state says which windows have emitted.
                reached = (ends <= minimum_of(collector)) | (~is_new & (due.view(np.int64) != ends))
            results = None
            if (which := np.flatnonzero(reached)).size:
                which = which[np.argsort(rows[which], kind="stable")]
                results = self._results(state.keys(places[which]), ends[which], take(parts, which))
        except BaseException:
            state.forget(all_places[np.isnat(state.numbers(plan.due, all_places))])
            raise
        self._store(state, places, ends, is_new, parts, reached)
        if results is not None:
            collector.emit_batch(results, rows=rows[which])

    def store(
        self, state: StateTable, keys: pa.RecordBatch, ends: Array, is_new: Array, parts: Parts, has_emitted: Array
    ) -> None:
        """Store windows, of which some are new, and some have emitted."""
        self._store(state, state.place(keys), ends, is_new, parts, has_emitted)

    def _store(
        self, state: StateTable, places: Array, ends: Array, is_new: Array, parts: Parts, has_emitted: Array
    ) -> None:
        plan = self.plan
        if not isinstance(plan.window, Assigner):
            state.put(END, places[is_new], ends[is_new].view("datetime64[us]"))
        if plan.due == CLOSES:
            closes = np.where(has_emitted, ends + plan.lateness, self.closing(ends))
            state.put(CLOSES, places[is_new], closes[is_new].view("datetime64[us]"))
        plan.store(state, places, parts)
        if plan.emission is Emission.EPOCH:
            self._changed.add(places)

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
            emits = self._changed.has(places)
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
        if len(places := self._changed.take()):
            collector.emit_batch(self.results_at(state, places))

    def next_time(self, state: StateTable) -> int | None:
        return state.earliest(self.plan.due)

    def forget(self, state: StateTable, places: Array) -> None:
        state.forget(places)
        self._changed.remove(places)

    def results_at(self, state: StateTable, places: Array) -> pa.RecordBatch:
        """The results of windows as they are now."""
        return self._results(state.keys(places), self.ends(state, places), self.plan.stored(state, places))

    def _results(self, keys: pa.RecordBatch, ends: Array, parts: Parts) -> pa.RecordBatch:
        known: dict[str, Any] = dict(zip(keys.schema.names, keys.columns, strict=True))
        return self.plan.results({**known, END: as_times(ends)}, parts)


class Distinct:
    """Finds places that come several times, without sorting."""

    def __init__(self) -> None:
        self._scratch = np.zeros(0, np.int64)

    def of(self, places: Array) -> tuple[Array, Groups | None]:
        """(the distinct places; the groups of rows with one place: None if each row is one)"""
        if len(places) and (size := int(places.max()) + 1) > len(self._scratch):
            self._scratch = np.zeros(2 * size, np.int64)
        rows = np.arange(len(places))
        self._scratch[places] = rows
        is_last = self._scratch[places] == rows
        if is_last.all():
            return places, None
        distinct = places[is_last]
        self._scratch[distinct] = np.arange(len(distinct))
        return distinct, Groups(self._scratch[places], len(distinct))
