"""The events that a table operator emits in one call, with their moments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components import TableCollector
from streamwork.components.collector import MAIN, Times
from streamwork.components.columns import Columns, as_columns, conforming
from streamwork.engine.steps.emitted import Outputs
from streamwork.flow.batch import Batch, joined, merged
from streamwork.flow.lineage import Array, Lineage
from streamwork.job import Node


class Some(NamedTuple):
    """What was emitted at once."""

    channel: str
    columns: Columns
    rows: Array | None
    times: Array | None


class TableEmitted(TableCollector):
    """Collects what one call of a table operator emits."""

    __slots__ = ("_now", "_rows", "node", "some")

    def __init__(self, node: Node, times: Times, rows: int | None = None, now: int | None = None) -> None:
        """`rows`: how many are applied in this call; `now`: the time that the clock has come to. None: this is no such call."""
        super().__init__(self._emit, times)
        self.node = node
        self.some: list[Some] = []
        self._rows = rows
        self._now = now

    def _emit(self, event: Any, channel: str = MAIN) -> None:
        kind = self.node.emits(channel)
        if kind is None:
            raise KeyError(channel)
        for columns in as_columns(kind, [[event]], self.node.id):
            self.emit_batch(columns.batch, channel)

    def emit_batch(
        self, batch: pa.RecordBatch, channel: str = MAIN, *, rows: Array | None = None, times: Array | None = None
    ) -> None:
        kind = self.node.emits(channel)
        if kind is None:
            raise KeyError(f"channel {channel!r} is not declared")
        if rows is not None:
            rows = _checked("rows", rows, batch, self._rows is not None, "apply_rows")
            if len(rows) and (rows[0] < 0 or rows[-1] >= (self._rows or 0)):
                raise ValueError(f"rows= are places in the batch that is applied, from 0 to {(self._rows or 0) - 1}")
        if times is not None:
            times = _checked("times", times, batch, self._now is not None, "on_time")
        elif self._now is not None:
            times = np.full(batch.num_rows, self._now, np.int64)
        if batch.num_rows:
            self.some.append(Some(channel, conforming(kind, batch, self.node.id), rows, times))

    def delivered(self) -> int:
        """How many of the rows gave something."""
        count = self._rows or 0
        if not self.some or any(one.rows is None for one in self.some):
            return count if self.some else 0
        gave = np.zeros(count, bool)
        for one in self.some:
            gave[one.rows] = True
        return int(gave.sum())


def _checked(name: str, given: Array, batch: pa.RecordBatch, allowed: bool, where: str) -> Array:
    found: Array = np.asarray(given)
    if not allowed:
        raise ValueError(f"{name}= has a meaning in {where} only")
    if found.dtype.kind not in "iu" or found.shape != (batch.num_rows,):
        raise ValueError(f"{name}= has one whole number per emitted row, {batch.num_rows}, and not {found.shape}")
    if len(found) > 1 and (found[1:] < found[:-1]).any():
        raise ValueError(f"{name}= must ascend: sort what is emitted")
    return found.astype(np.int64, copy=False)


class Gathered:
    """What the calls of one wave have emitted, by channel, each event with its lineage."""

    def __init__(self) -> None:
        self._batches: dict[str, list[Batch]] = {}

    def add(self, one: Some, lineage: Lineage | None) -> None:
        self._batches.setdefault(one.channel, []).append(Batch(one.columns, lineage))

    def outputs(self) -> Outputs:
        """In the order of moments, where there are any."""
        return {
            channel: joined(mine) if mine[0].moments is None else merged(mine)
            for channel, mine in self._batches.items()
        }
