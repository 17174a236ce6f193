"""`Partials`: keeps the partial aggregates of each key, checkpoint by checkpoint.

What it keeps must answer "everything behind checkpoint S" for every S that a batch run has claimed or may claim:

1. The events of a checkpoint go into the row of their key and that checkpoint.
2. Before a checkpoint, now and then, rows that are older than `APART` checkpoints become one row per key; but rows before and
   behind a claimed checkpoint stay apart. A run claims the newest checkpoint, so none will be claimed that is older than those.
3. Rows up to `Seams.done` are forgotten: no view needs them.

    a claim that comes late (its run stood still for APART checkpoints between 'newest' and the file)
        2 may have merged rows across it. Such a row says so (checkpoint <= S < until): readers refuse to answer from that run.
    a crash, a replay                      2 and 3 are done again from what the folder then says; sums over rows do not change.
    a fall back to an older checkpoint     the rows are those of that checkpoint. Runs that were claimed beyond it are no longer
        shown (`Reader.contains`), until a run claims a checkpoint that is not below any claim: so 3 forgets nothing that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streamwork.components import Event, Instance, Record
from streamwork.components.table_operator import Rows, StateTable, TableCollector, TableOperator
from streamwork.lambdas.plan import CHECKPOINT, UNTIL, PartialPlan
from streamwork.lambdas.seams import FOLDER, SeamFolder, Seams
from streamwork.operators.aggregates.columns import Array, take
from streamwork.operators.windows.grouping import finer, grouped, key_codes
from streamwork.world import RealDisk

APART = 64
"""The newest checkpoints whose rows stay apart."""
EVERY = 32
"""Rows are merged once in so many checkpoints."""


class Partials(TableOperator):  # type: ignore[type-arg]
    """In a batch run (`divides` is False) all events of a key go into one row."""

    def __init__(self, plan: PartialPlan, divides: bool = True) -> None:
        self.plan = plan
        self.divides = divides
        self.pure = plan.is_pure
        self.sub_key = plan.sub_key

    def setup_instance(self, instance: Instance) -> None:
        self._folder = SeamFolder(RealDisk(), instance.folder / FOLDER)
        self._merged_at = 0
        self._done = 0

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return self.plan.event, self.plan.record, self.plan.to

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        checkpoint = collector.checkpoint if self.divides else 0
        keys = rows.batch.select(list(self.plan.key))
        groups = grouped(keys, [])
        parts = self.plan.partials(rows.batch, groups)
        named = _labelled(keys.take(pa.array(groups.firsts)), np.full(groups.count, checkpoint))
        found = state.find(named)
        old = np.flatnonzero(found >= 0)
        if len(old):
            parts = self.plan.replaced(
                parts, old, self.plan.merged(self.plan.stored(state, found[old]), take(parts, old))
            )
        places = state.place(named)
        state.put(UNTIL, places, np.full(len(places), checkpoint))
        self.plan.store(state, places, parts)

    def on_checkpoint(self, state: StateTable, collector: TableCollector) -> None:
        if not self.divides:
            return
        seams, now = self._folder.look(), collector.checkpoint
        if seams.done != self._done:
            self._done = seams.done
            self._forget(state, seams.done)
        if now >= self._merged_at + EVERY:
            self._merged_at = now
            self._merge(state, now - APART, seams)

    def _forget(self, state: StateTable, done: int) -> None:
        places = state.places()
        state.forget(places[state.numbers(UNTIL, places) <= done])

    def _merge(self, state: StateTable, horizon: int, seams: Seams) -> None:
        """2. One row for each key and stretch between two claims, of the rows up to `horizon`."""
        places = state.places()
        places = places[state.numbers(UNTIL, places) <= horizon]
        labels = state.values(CHECKPOINT, places).to_numpy()
        order = np.argsort(labels, kind="stable")
        places, labels = places[order], labels[order]
        codes, count = key_codes(state.keys(places).select(list(self.plan.key)))
        groups = finer(codes, count, [np.searchsorted(np.array(seams.ends, np.int64), labels)])
        if groups.count == len(places):
            return
        several = groups.sizes[groups.codes] > 1
        places, groups = places[several], finer(groups.codes[several], groups.count, [])
        first, last = places[groups.firsts], places[groups.lasts]
        parts = self.plan.combined(self.plan.stored(state, places), groups)
        until = state.numbers(UNTIL, last)
        state.put(UNTIL, first, until)
        self.plan.store(state, first, parts)
        state.forget(np.setdiff1d(places, first))


def _labelled(keys: pa.RecordBatch, checkpoints: Array) -> pa.RecordBatch:
    return keys.append_column(CHECKPOINT, pa.array(checkpoints, pa.int64()))
