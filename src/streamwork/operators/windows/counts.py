"""`Counts`: windows by count. Event number n of a key, from 0 on, is in window k if k * step <= n < k * step + length.

The number of events of a key that were seen follows from its newest window, which is kept for that, even if it is full.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streamwork.components import Event, Instance, Record
from streamwork.components.table_operator import Rows, StateTable, TableCollector
from streamwork.operators.aggregates.columns import Array, Groups, Parts, take
from streamwork.operators.windows.assign import expanded
from streamwork.operators.windows.changed import Changed
from streamwork.operators.windows.each_event import ranks
from streamwork.operators.windows.grouping import grouped, key_codes
from streamwork.operators.windows.kinds import FixedCount, SlidingCount
from streamwork.operators.windows.operators import WindowOperator, taken_type
from streamwork.operators.windows.plan import EVENTS, NUMBER, Emission, WindowPlan, keys_of
from streamwork.operators.windows.running import run


class Counts(WindowOperator):
    def __init__(self, plan: WindowPlan) -> None:
        super().__init__(plan)
        self.sub_key = plan.sub_key
        assert isinstance(plan.window, FixedCount | SlidingCount)
        self._length, self._step = plan.window.length, plan.window.step

    def setup_instance(self, instance: Instance) -> None:
        self._changed = Changed()

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        plan, batch = self.plan, rows.batch
        keys = batch.select(list(plan.state_key))
        owners = Groups(*key_codes(keys))
        seen, over = self._seen(keys_of(keys, plan.state_key, owners.firsts), state)
        ordinals = seen[owners.codes] + ranks(owners)
        first = np.maximum((ordinals - self._length) // self._step + 1, 0)
        at, numbers = expanded(first, ordinals // self._step)
        windows = keys.take(pa.array(at)).append_column(NUMBER, pa.array(numbers))
        events = batch.take(pa.array(at))
        groups, found, names, parts = self._windows(events, windows, state, at, collector, ordinals)
        counts = ordinals[at][groups.lasts] - numbers[groups.lasts] * self._step + 1
        full = counts == self._length
        newest = numbers[groups.lasts] == (ordinals[owners.lasts] // self._step)[owners.codes[at[groups.lasts]]]
        if not plan.is_running and full.any():
            last = at[groups.lasts[full]]
            order = np.argsort(last, kind="stable")
            done = np.flatnonzero(full)[order]
            collector.emit_batch(self._results(names.take(pa.array(done)), take(parts, done)), rows=last[order])
        state.forget(np.concatenate((over, found[full & ~newest & (found >= 0)])))
        kept = np.flatnonzero(~full | newest)
        places = state.place(names.take(pa.array(kept)))
        state.put(EVENTS, places, counts[kept])
        plan.store(state, places, take(parts, kept))
        if plan.emission is Emission.EPOCH:
            self._changed.remove(np.concatenate((over, found, places)))
            self._changed.add(places[~full[kept]])

    def _seen(self, keys: pa.RecordBatch, state: StateTable) -> tuple[Array, Array]:
        """(how many events each key has had; the places of full windows, which are kept until the key has a newer one)"""
        owners, places = state.matches(keys, nulls=True)
        numbers = state.values(NUMBER, places).to_numpy()
        events = state.numbers(EVENTS, places)
        seen = np.zeros(keys.num_rows, np.int64)
        np.maximum.at(seen, owners, numbers * self._step + events)
        return seen, places[events == self._length]

    def _windows(
        self,
        events: pa.RecordBatch,
        windows: pa.RecordBatch,
        state: StateTable,
        at: Array,
        collector: TableCollector,
        ordinals: Array,
    ) -> tuple[Groups, Array, pa.RecordBatch, Parts]:
        """(the windows that events are in, their places, their keys, their aggregates). Emits those of each event."""
        plan = self.plan
        if plan.is_running:
            found = run(plan, events, windows, state)
            known = dict(zip(events.schema.names, events.columns, strict=True))
            results = plan.results({**known, NUMBER: windows.column(NUMBER)}, found.parts)
            fired = np.ones(len(at), bool)
            if plan.trigger is not None:
                ends = windows.column(NUMBER).to_numpy() * self._step + self._length - 1
                fired = plan.trigger.fires_batch(results, plan.to) | (ordinals[at] == ends)
            if fired.any():
                collector.emit_batch(results.filter(pa.array(fired)), rows=at[fired])
            return found.groups, found.found, found.keys, take(found.parts, found.groups.lasts)
        groups = grouped(windows, [])
        names = windows.take(pa.array(groups.firsts))
        places = state.find(names)
        parts = plan.partials(events, groups)
        old = np.flatnonzero(places >= 0)
        if len(old):
            parts = plan.replaced(parts, old, plan.merged(plan.stored(state, places[old]), take(parts, old)))
        return groups, places, names, parts

    def on_checkpoint(self, state: StateTable, collector: TableCollector) -> None:
        if len(places := self._changed.take()):
            collector.emit_batch(self._results(state.keys(places), self.plan.stored(state, places)))

    def _results(self, keys: pa.RecordBatch, parts: Parts) -> pa.RecordBatch:
        return self.plan.results(dict(zip(keys.schema.names, keys.columns, strict=True)), parts)

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return taken_type(self.plan), self.plan.record, self.plan.to
