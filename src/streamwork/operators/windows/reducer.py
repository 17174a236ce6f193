"""`Reducer`: assigns the events of a batch to windows, sorts out late ones, and reduces the others to partial aggregates. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components import TimerClock
from streamwork.components.table_operator import NEVER, Rows
from streamwork.operators.aggregates.columns import Array, Groups, take
from streamwork.operators.aggregates.ordered import ORDER
from streamwork.operators.late import Judged, judge
from streamwork.operators.times import numbers_of
from streamwork.operators.windows.assign import assigned, check_range, expanded, sessions, span
from streamwork.operators.windows.grouping import finer, grouped, key_codes
from streamwork.operators.windows.kinds import Assigner, Fixed, Session, Sliding
from streamwork.operators.windows.plan import EVERYTHING, WindowPlan, keys_of


class Pairs(NamedTuple):
    """Events, each with a window that takes it."""

    rows: Array
    """Places in the batch, in ascending order."""
    starts: Array
    ends: Array


class Reducer:
    def __init__(self, plan: WindowPlan) -> None:
        self._plan = plan
        self._is_ordered = any(one.order is not None for one in plan.aggregates)
        self._depends_on_order = any(one.depends_on_order for one in plan.aggregates)
        self._seen = 0  # events, so far

    def reduce(self, rows: Rows, now: int, minimum: int = NEVER) -> tuple[pa.RecordBatch | None, Judged | None]:
        """(the partials, the judgement of late events; None: there are none).

        `now` is processing time; `minimum`: also events are late that this watermark finds late.
        """
        plan, batch = self._plan, rows.batch
        times, judged = self.judged(rows, now, minimum)
        watermarks = self.watermarks(rows, minimum)
        if judged is not None:
            taken = np.flatnonzero(~judged.late)
            if not len(taken):
                return None, judged
            batch, times, watermarks = batch.take(pa.array(taken)), times[taken], watermarks[taken]
        keys = self.keys(batch)
        batch = self._numbered(batch)
        window = plan.window
        if isinstance(window, Session):
            return self._sessions(batch, keys, times, window), judged
        if isinstance(window, Assigner) or (isinstance(window, Sliding) and self._depends_on_order):
            return self._assigned(batch, keys, times, watermarks), judged
        assert isinstance(window, Fixed | Sliding)
        return self._spans(batch, keys, times, watermarks, window), judged

    def keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The key columns of a batch."""
        if self._plan.key or EVERYTHING in batch.schema.names:
            return batch.select(list(self._plan.state_key))
        return pa.RecordBatch.from_arrays([pa.array(np.ones(batch.num_rows, bool))], names=[EVERYTHING])

    def judged(self, rows: Rows, now: int, minimum: int) -> tuple[Array, Judged | None]:
        """(the times of all events; which of them are late: None if none is)"""
        plan, count = self._plan, rows.batch.num_rows
        if plan.clock is TimerClock.PROCESSING or plan.time is None:
            return np.full(count, now), None
        times, window = numbers_of(rows.batch.column(plan.time)), plan.window
        if isinstance(window, Session):
            ends = times + window.length
        elif isinstance(window, Fixed | Sliding):
            ends = times // window.step * window.step + window.length
        else:
            assert isinstance(window, Assigner)
            ends = assigned(times, rows.watermarks, rows.batch, window, plan.lateness)[1]
        judged = judge(ends + plan.lateness, rows.watermarks, minimum)
        return times, judged if judged.late.any() else None

    def watermarks(self, rows: Rows, minimum: int) -> Array:
        """Those that decide which windows still take an event."""
        if self._plan.clock is TimerClock.PROCESSING:
            return np.full(rows.batch.num_rows, NEVER)
        return rows.watermarks if minimum == NEVER else np.maximum(rows.watermarks, minimum)

    def pairs(self, batch: pa.RecordBatch, times: Array, watermarks: Array) -> Pairs:
        """Events with their windows; not for sessions."""
        plan, window = self._plan, self._plan.window
        if isinstance(window, Assigner):
            found = Pairs(*assigned(times, watermarks, batch, window, plan.lateness)[0])
        else:
            assert isinstance(window, Fixed | Sliding)
            first, last = span(times, watermarks, window, plan.lateness)
            rows, numbers = expanded(first, last)
            found = Pairs(rows, numbers * window.step, numbers * window.step + window.length)
        check_range(found.starts, found.ends, plan.id)
        return found

    def _spans(
        self, batch: pa.RecordBatch, keys: pa.RecordBatch, times: Array, watermarks: Array, window: Fixed | Sliding
    ) -> pa.RecordBatch:
        """Events that the same windows take are reduced first; then the windows get what was reduced, in no order of events."""
        first, last = span(times, watermarks, window, self._plan.lateness)
        slides = window.step < window.length
        owners, owner_count = key_codes(keys)
        groups = finer(owners, owner_count, [last, first] if slides else [last])
        parts = self._plan.partials(batch, groups)
        codes, numbers, rows = np.arange(groups.count), last[groups.firsts], groups.firsts
        if slides:
            codes, numbers = expanded(first[rows], numbers)
            rows = rows[codes]
            again = finer(owners[rows], owner_count, [numbers])
            parts = self._plan.combined(take(parts, codes), again)
            rows, numbers = rows[again.firsts], numbers[again.firsts]
        starts, ends = numbers * window.step, numbers * window.step + window.length
        check_range(starts, ends, self._plan.id)
        return self._plan.as_batch(keys_of(keys, self._plan.state_key, rows), starts, ends, parts)

    def _assigned(self, batch: pa.RecordBatch, keys: pa.RecordBatch, times: Array, watermarks: Array) -> pa.RecordBatch:
        """Each window gets its events, in their order."""
        pairs = self.pairs(batch, times, watermarks)
        keys = keys.take(pa.array(pairs.rows))
        groups = grouped(keys, [pairs.starts, pairs.ends])
        parts = self._plan.partials(batch.take(pa.array(pairs.rows)), groups)
        rows = groups.firsts
        return self._plan.as_batch(
            keys_of(keys, self._plan.state_key, rows), pairs.starts[rows], pairs.ends[rows], parts
        )

    def _sessions(self, batch: pa.RecordBatch, keys: pa.RecordBatch, times: Array, window: Session) -> pa.RecordBatch:
        return self._in_groups(batch, keys, times, sessions(key_codes(keys)[0], times, times + window.length), window)

    def single_sessions(self, batch: pa.RecordBatch, times: Array) -> pa.RecordBatch:
        """A partial of each event."""
        assert isinstance(self._plan.window, Session)
        groups = Groups(np.arange(len(times)), len(times))
        return self._in_groups(self._numbered(batch), self.keys(batch), times, groups, self._plan.window)

    def _in_groups(
        self, batch: pa.RecordBatch, keys: pa.RecordBatch, times: Array, groups: Groups, window: Session
    ) -> pa.RecordBatch:
        starts, ends = bounds(groups, times, times + window.length)
        check_range(starts, ends, self._plan.id)
        parts = self._plan.partials(batch, groups)
        return self._plan.as_batch(keys_of(keys, self._plan.state_key, groups.firsts), starts, ends, parts)

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a column that numbers its events, if the order of some that are sent in different batches matters."""
        if not self._is_ordered:
            return batch
        count = batch.num_rows
        self._seen += count
        return batch.append_column(ORDER, pa.array(np.arange(self._seen - count, self._seen)))


def bounds(groups: Groups, starts: Array, ends: Array) -> tuple[Array, Array]:
    """(the earliest start, the latest end) of each group"""
    low, high = starts[groups.firsts], ends[groups.firsts]
    np.minimum.at(low, groups.codes, starts)
    np.maximum.at(high, groups.codes, ends)
    return low, high
