"""The results of windows with each event: for ``emit="event"``, triggers, and windows by count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components.table_operator import StateTable
from streamwork.operators.aggregates.columns import Array, Groups, Parts, running, stacked, take
from streamwork.operators.windows.grouping import grouped
from streamwork.operators.windows.plan import WindowPlan


class Running(NamedTuple):
    """Events with their windows, and the state of the window that includes the event."""

    groups: Groups
    """The window of each pair of an event and a window."""
    found: Array
    """The place of each window in the state; -1 where it has none."""
    keys: pa.RecordBatch
    """The key and sub-key of each window."""
    parts: Parts
    """One row for each pair."""


def run(plan: WindowPlan, events: pa.RecordBatch, keys: pa.RecordBatch, state: StateTable) -> Running:
    """For pairs of an event and a window: `events` has the event, and `keys` the key and sub-key of the window."""
    groups = grouped(keys, [])
    windows = keys.take(pa.array(groups.firsts))
    found = state.find(windows)
    old = np.flatnonzero(found >= 0)
    count = events.num_rows
    single = plan.partials(events, Groups(np.arange(count), count))
    together = stacked([plan.stored(state, found[old]), single]) if len(old) else single
    codes = np.concatenate((old, groups.codes))
    both = Groups(codes, groups.count)
    sorted_codes = codes[both.order]
    parts = running(take(together, both.order), Groups(sorted_codes, groups.count), plan.merged)
    back = np.empty(len(codes), np.int64)
    back[both.order] = np.arange(len(codes))
    return Running(groups, found, windows, take(parts, back[len(old) :]))
