"""The operators that windows are made of. `Reduce` and `Merge` are two nodes of one window; the others are one node that gets rows.

Reduce    in the chain of its input: late events out, partial aggregates on
Merge     merges partial aggregates into windows, which emit
Whole     both in one, where partitions may be idle: the minimum may be beyond an event that is in time
EachEvent results with each event: ``emit="event"``, triggers (`windows.each_event`)
Counts    windows by count (`windows.counts`)
AddKey    before the last three: gives events without a key one
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event, Instance, Record, TimerClock
from streamwork.components.schema import arrow_schema
from streamwork.components.table_operator import NEVER, Rows, StateTable, TableCollector, TableOperator
from streamwork.components.times import microseconds
from streamwork.operators.late import LATE, Judged
from streamwork.operators.times import minimum_of
from streamwork.operators.windows.kinds import Session
from streamwork.operators.windows.merging import Windows
from streamwork.operators.windows.merging_sessions import Sessions
from streamwork.operators.windows.plan import WindowPlan
from streamwork.operators.windows.reducer import Reducer

Tables = Mapping[str, StateTable]


class WindowOperator(TableOperator[Any, Any, Any]):
    """What the operators of a window have in common."""

    keeps_key = True
    late_channels = frozenset((LATE,))

    def __init__(self, plan: WindowPlan) -> None:
        self.plan = plan
        self.pure = plan.is_pure

    def _with_watermarks(self, rows: Rows, collector: TableCollector) -> Rows:
        """Events that come from no row have no watermark of their own. They are judged by the minimum before the wave; before the
        first event of a partition there is none either.
        """
        unknown = rows.watermarks == NEVER
        if not self.judges_lateness or not unknown.any():
            return rows
        return rows._replace(watermarks=np.where(unknown, minimum_of(collector), rows.watermarks))

    def _now(self, collector: TableCollector) -> int:
        return microseconds(collector.now) if self.plan.clock is TimerClock.PROCESSING else 0


class Reduce(WindowOperator):
    """Assigns events to windows, judges lateness, reduces. It keeps nothing."""

    def __init__(self, plan: WindowPlan) -> None:
        super().__init__(plan)
        self.judges_lateness = plan.clock is TimerClock.EVENT
        self.channels = _channels(plan)

    def setup_instance(self, instance: Instance) -> None:
        self._reducer = Reducer(self.plan)

    def apply_rows(self, rows: Rows, state: StateTable, tables: Tables, collector: TableCollector) -> None:
        rows = self._with_watermarks(rows, collector)
        partials, judged = self._reducer.reduce(rows, self._now(collector))
        emit_late(self.plan, rows.batch, judged, collector)
        if partials is not None:
            collector.emit_batch(partials)

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return self.plan.event, None, self.plan.partial


class Merge(WindowOperator):
    """Merges partial aggregates into windows."""

    def __init__(self, plan: WindowPlan) -> None:
        super().__init__(plan)
        self.sub_key = plan.sub_key
        assert plan.clock is not None
        self.clocks = frozenset({plan.clock})

    def setup_instance(self, instance: Instance) -> None:
        self.windows = Sessions(self.plan) if isinstance(self.plan.window, Session) else Windows(self.plan)

    def apply_rows(self, rows: Rows, state: StateTable, tables: Tables, collector: TableCollector) -> None:
        self.windows.merge(rows.batch, state, collector)

    def on_time(
        self, clock: TimerClock, time: int, state: StateTable, tables: Tables, collector: TableCollector
    ) -> None:
        self.windows.on_time(time, state, collector)

    def on_checkpoint(self, state: StateTable, collector: TableCollector) -> None:
        self.windows.on_checkpoint(state, collector)

    def next_time(self, clock: TimerClock, state: StateTable) -> int | None:
        return self.windows.next_time(state)

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return self.plan.partial, self.plan.record, self.plan.to


class TakesRows(Merge):
    """One node that gets events, not partials."""

    def __init__(self, plan: WindowPlan) -> None:
        super().__init__(plan)
        self.judges_lateness = plan.clock is TimerClock.EVENT
        self.channels = _channels(plan)

    def setup_instance(self, instance: Instance) -> None:
        super().setup_instance(instance)
        self.reducer = Reducer(self.plan)

    def minimum(self, collector: TableCollector) -> int:
        """The minimum over all inputs, by which an event of a partition that was idle may be late."""
        return minimum_of(collector) if self.plan.has_idle_inputs and self.judges_lateness else NEVER

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return taken_type(self.plan), self.plan.record, self.plan.to


class Whole(TakesRows):
    """`Reduce` and `Merge` in one."""

    def apply_rows(self, rows: Rows, state: StateTable, tables: Tables, collector: TableCollector) -> None:
        rows = self._with_watermarks(rows, collector)
        partials, judged = self.reducer.reduce(rows, self._now(collector), self.minimum(collector))
        emit_late(self.plan, rows.batch, judged, collector)
        if partials is not None:
            # A correction is not the work of a single row: it comes from the last one.
            source = np.full(partials.num_rows, rows.batch.num_rows - 1)
            self.windows.merge(partials, state, collector, source)


class AddKey(TableOperator[Any, Any, Any]):
    """Gives events the key of a window over everything."""

    def __init__(self, plan: WindowPlan) -> None:
        self.plan = plan

    def apply_rows(self, rows: Rows, state: StateTable, tables: Tables, collector: TableCollector) -> None:
        count = rows.batch.num_rows
        columns = [*rows.batch.columns, pa.array(np.ones(count, bool))]
        batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.plan.keyed_event))
        collector.emit_batch(batch, rows=np.arange(count))

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        return self.plan.event, None, self.plan.keyed_event


def taken_type(plan: WindowPlan) -> type[Event]:
    """What an operator takes that gets events: those of a window over everything have a key."""
    return plan.event if plan.key else plan.keyed_event


def emit_late(plan: WindowPlan, batch: pa.RecordBatch, judged: Judged | None, collector: TableCollector) -> None:
    if judged is not None:
        events = batch.select(arrow_schema(plan.event).names)
        collector.emit_batch(judged.batch(plan.late, events), LATE, rows=np.flatnonzero(judged.late))


def _channels(plan: WindowPlan) -> dict[str, type[Event]]:
    return {LATE: plan.late} if plan.clock is TimerClock.EVENT else {}
