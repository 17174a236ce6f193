"""Merging: rows of partial aggregates of a batch run and of the streaming job, as answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.batches import one_array
from streamwork.errors import JobFailed
from streamwork.lambdas.plan import CHECKPOINT, UNTIL, PartialPlan
from streamwork.operators.aggregates.columns import Array, take
from streamwork.operators.windows.grouping import finer, key_codes


@dataclass(frozen=True)
class Merged:
    """One row per key. Where a part has no events of a key, its row there has the results of no other key: see `in_batch`,
    `in_stream`.
    """

    keys: pa.RecordBatch
    both: pa.RecordBatch
    exact: pa.RecordBatch  # of the keys of `in_batch`, in their order
    recent: pa.RecordBatch  # of the keys of `in_stream`
    in_batch: Array  # numbers of keys
    in_stream: Array

    @cached_property
    def is_exact(self) -> Array:
        """True for keys of which no event lies behind the seam."""
        found = np.ones(self.keys.num_rows, bool)
        found[self.in_stream] = False
        return found


def behind(rows: pa.Table, seam: int) -> pa.Table:
    """The partial aggregates behind a seam. Refuses rows that lie across it (SW-LAMBDA-SEAM)."""
    labels, until = (rows.column(name).to_numpy() for name in (CHECKPOINT, UNTIL))
    later = until > seam
    if bool((labels[later] <= seam).any()):
        raise JobFailed(
            "SW-LAMBDA-SEAM",
            f"the streaming job has merged what lies before and behind checkpoint {seam}: the batch run that counts up to it stood "
            "still before it could say so",
            "start another batch run: `streamwork lambda run job.py`",
        )
    return rows.filter(pa.array(later))


def merged(plan: PartialPlan, batch: pa.Table | None, stream: pa.Table) -> Merged:
    """`stream` are the rows behind the seam, `batch` those of the batch run, if there is one."""
    count = 0 if batch is None else batch.num_rows
    rows = stream if batch is None else pa.concat_tables([batch, stream.select(batch.schema.names)])
    labels = rows.column(CHECKPOINT).to_numpy().copy()
    labels[:count] = -1
    order = np.argsort(labels, kind="stable")
    found = _one_batch(rows.take(pa.array(order)))
    from_batch = order < count
    keys = found.select(list(plan.key))
    codes, number = key_codes(keys)
    groups = finer(codes, number, [])
    distinct = keys.take(pa.array(groups.firsts))
    parts = plan.parts_of(found)
    both = _results(plan, distinct, plan.combined(parts, groups))
    sides = []
    for mine in (np.flatnonzero(from_batch), np.flatnonzero(~from_batch)):
        some = finer(groups.codes[mine], groups.count, [])
        owners = groups.codes[mine][some.firsts]
        results = _results(plan, distinct.take(pa.array(owners)), plan.combined(take(parts, mine), some))
        sides.append((results, owners))
    (exact, in_batch), (recent, in_stream) = sides
    return Merged(distinct, both, exact, recent, in_batch, in_stream)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    arrays = [one_array(column.chunks, column.type) for column in rows.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def _results(plan: PartialPlan, keys: pa.RecordBatch, parts: Any) -> pa.RecordBatch:
    return plan.results(dict(zip(keys.schema.names, keys.columns, strict=True)), parts)
