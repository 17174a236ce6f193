"""`Top`: the events of each window with the largest values of a field.

The results of a window come from all instances; they meet in the one that the window's start and end choose. Where each is
final, only the best of each instance travel (`Prune`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Event, Instance, Record, TimerClock
from streamwork.components.made import annotations_of, make_event, make_record
from streamwork.components.schema import arrow_schema, fields_of
from streamwork.components.table_operator import Rows, StateTable, TableCollector, TableOperator
from streamwork.components.times import BEGINNING
from streamwork.errors import WrongUse
from streamwork.operators.aggregates.columns import Array
from streamwork.operators.times import minimum_of, numbers_of
from streamwork.operators.windows.changed import Changed
from streamwork.operators.windows.grouping import grouped
from streamwork.operators.windows.kinds import Session
from streamwork.operators.windows.plan import CLOSES, END, START, Emission, WindowPlan

RANK = "rank"


@dataclass(frozen=True)
class TopPlan:
    """Which events of which windows are chosen, checked."""

    id: str
    window: WindowPlan
    count: int
    by: str

    @classmethod
    def of(cls, id: str, window: WindowPlan, count: int, by: str) -> TopPlan:
        to, known = window.to, fields_of(window.to)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise _wrong(f"{id}: top({count!r})", "use a whole number from 1 on")
        if by not in known or known[by].arrow.num_fields:
            raise _wrong(
                f"{id}: {to.__name__} has no field {by!r} that has an order", f"use one of: {', '.join(known)}"
            )
        if window.window.by_count or isinstance(window.window, Session) or window.is_running:
            raise _wrong(
                f"{id}: top needs windows by time that several keys have in common, and one result of each",
                'use Fixed or Sliding windows, with emit="close" or "epoch", and no trigger',
            )
        if RANK in known:
            raise _wrong(f"{id}: {to.__name__}.{RANK} has the name of the field that top adds", "rename it")
        for name in (START, END, *window.key):
            if name not in known:
                raise _wrong(f"{id}: {to.__name__} has no field {name!r}", "add it: top goes by window and key")
        return cls(id, window, count, by)

    @property
    def key(self) -> tuple[str, ...]:
        return (START, END)

    @property
    def is_pruned(self) -> bool:
        """True if the results of a window are final, so that only the best of each instance can be chosen."""
        return self.window.emission is Emission.CLOSE and self.window.lateness == 0

    @cached_property
    def gives(self) -> type[Event]:
        return make_event(f"Top{self.window.to.__name__}", {**annotations_of(self.window.to), RANK: int})

    @cached_property
    def sub_key(self) -> type[Record]:
        """The key of the event; if windows have none, there is one event, and its rank is 1."""
        known = annotations_of(self.window.to)
        fields: dict[str, tuple[Any, Any]] = {name: (known[name], None) for name in self.window.key} or {RANK: (int, 1)}
        return make_record("TopKey", fields, self.window.to.renamed_from)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The fields that are kept in the record."""
        return tuple(name for name in fields_of(self.window.to) if name not in (START, END, *self.window.key))

    @cached_property
    def record(self) -> type[Record]:
        known = annotations_of(self.window.to)
        kept = {name: (known[name] | None, None) for name in self.values}
        fields = {CLOSES: (datetime, BEGINNING), **kept}
        return make_record(f"Top{self.window.to.__name__}Row", fields, self.window.to.renamed_from)


class _TopOperator(TableOperator[Any, Any, Any]):
    def __init__(self, plan: TopPlan) -> None:
        self.plan = plan


class Prune(_TopOperator):
    """The best events of each window, of those that are in one instance."""

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        found, _ = best(self.plan, rows.batch)
        found = np.sort(found)
        collector.emit_batch(rows.batch.take(pa.array(found)), rows=found)

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return self.plan.window.to, None, self.plan.window.to


class Top(_TopOperator):
    """Keeps the results of each window. It emits the best when the minimum reaches the window's end, and after each correction; or
    before each checkpoint. `window_closes` is the window's end until it has emitted, then the end + lateness.
    """

    def __init__(self, plan: TopPlan) -> None:
        super().__init__(plan)
        self.sub_key = plan.sub_key
        assert plan.window.clock is not None
        self.clocks = frozenset({plan.window.clock})
        self._corrects = plan.window.emission is Emission.CLOSE and plan.window.lateness > 0
        self._by_epoch = plan.window.emission is Emission.EPOCH

    def setup_instance(self, instance: Instance) -> None:
        self._changed = Changed()  # where each checkpoint emits

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        plan, batch = self.plan, rows.batch
        keys = batch.select([*plan.key, *plan.window.key])
        if not plan.window.key:
            keys = keys.append_column(RANK, pa.array(np.ones(batch.num_rows, np.int64)))
        last = grouped(keys, []).lasts  # a later result replaces an earlier one
        chosen, windows = batch.take(pa.array(last)), batch.select(list(plan.key)).take(pa.array(last))
        ends = numbers_of(chosen.column(END))
        emitted = ends <= minimum_of(collector) if self._corrects else np.zeros(len(ends), bool)
        places = state.place(keys.take(pa.array(last)))
        for name in plan.values:
            state.put(name, places, chosen.column(name))
        late = emitted if self._corrects else np.full(len(ends), self._by_epoch)
        state.put(CLOSES, places, (ends + np.where(late, plan.window.lateness, 0)).view("datetime64[us]"))
        if self._by_epoch:
            self._changed.add(places)
        if emitted.any():
            _, again = state.matches(windows.filter(pa.array(emitted)), nulls=True)
            found, _ = self._best(np.unique(again), state)
            collector.emit_batch(found, rows=np.full(found.num_rows, batch.num_rows - 1))

    def on_time(
        self,
        clock: TimerClock,
        time: int,
        state: StateTable,
        tables: Mapping[str, StateTable],
        collector: TableCollector,
    ) -> None:
        """The results of windows that end by this time are all there."""
        places = state.due(CLOSES, time)
        if not len(places):
            return
        ends, closes = numbers_of(state.values(END, places)), state.numbers(CLOSES, places).view(np.int64)
        emits = np.ones(len(places), bool)
        if self._by_epoch:
            emits = self._of_changed(places, state)
        elif self._corrects:
            emits = closes == ends
        if emits.any():
            found, times = self._best(places[emits], state)
            collector.emit_batch(found, times=times)
        stays = emits & (ends + self.plan.window.lateness > time)
        state.put(CLOSES, places[stays], (ends[stays] + self.plan.window.lateness).view("datetime64[us]"))
        self._changed.remove(places[~stays])
        state.forget(places[~stays])

    def _of_changed(self, places: Array, state: StateTable) -> Array:
        """True for rows of windows of which a row has changed."""
        windows = grouped(state.keys(places).select(list(self.plan.key)), [])
        changed = np.zeros(windows.count, bool)
        changed[windows.codes[self._changed.has(places)]] = True
        return changed[windows.codes]

    def on_checkpoint(self, state: StateTable, collector: TableCollector) -> None:
        if len(places := self._changed.take()):
            windows = state.keys(places).select(list(self.plan.key))
            firsts = grouped(windows, []).firsts
            _, mine = state.matches(windows.take(pa.array(firsts)), nulls=True)
            collector.emit_batch(self._best(mine, state)[0])

    def _best(self, places: Array, state: StateTable) -> tuple[pa.RecordBatch, Array]:
        """(the best events of whole windows, their windows' ends)"""
        schema = arrow_schema(self.plan.window.to)
        columns = [state.values(name, places).cast(schema.field(name).type) for name in schema.names]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        rows, ranks = best(self.plan, batch)
        taken = batch.take(pa.array(rows))
        made = pa.RecordBatch.from_arrays([*taken.columns, pa.array(ranks)], schema=arrow_schema(self.plan.gives))
        return made, numbers_of(taken.column(END))

    def next_time(self, clock: TimerClock, state: StateTable) -> int | None:
        return state.earliest(CLOSES)

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return self.plan.window.to, self.plan.record, self.plan.gives


def best(plan: TopPlan, batch: pa.RecordBatch) -> tuple[Array, Array]:
    """(rows, ranks) of the best events of each window; by the windows' ends, then by rank."""
    sort_keys = [(END, "ascending"), (START, "ascending"), (plan.by, "descending")]
    sort_keys += [(name, "ascending") for name in plan.window.key]
    order = pc.sort_indices(pa.table(batch.columns, names=batch.schema.names), sort_keys=sort_keys).to_numpy()
    starts, ends = numbers_of(batch.column(START))[order], numbers_of(batch.column(END))[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    ranks = np.arange(len(order)) - first + 1
    chosen = ranks <= plan.count
    return order[chosen], ranks[chosen]


def _wrong(cause: str, action: str) -> WrongUse:
    return WrongUse("SW-WINDOW-TOP", cause, action)
