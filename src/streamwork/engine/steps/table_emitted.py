"""The events that a table operator emits in one call, with their moments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components import TableCollector
from streamwork.components.collector import MAIN, Times
from streamwork.components.columns import Columns, as_columns, conforming
from streamwork.engine.steps.emitted import Outputs
from streamwork.engine.steps.named_rows import checked_numbers, checked_rows
from streamwork.flow.batch import Batch, joined, merged
from streamwork.flow.lineage import Array, Lineage
from streamwork.job import Node


class Some(NamedTuple):
    """What was emitted at once."""

    channel: str
    columns: Columns
    rows: Array | None
    times: Array | None
    watermarks: Array | None = None


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
        self,
        batch: pa.RecordBatch,
        channel: str = MAIN,
        *,
        rows: Array | None = None,
        times: Array | None = None,
        watermarks: Array | None = None,
    ) -> None:
        kind = self.node.emits(channel)
        if kind is None:
            raise KeyError(f"channel {channel!r} is not declared")
        if rows is not None:
            if self._rows is None:
                raise ValueError("rows= has a meaning in apply_rows only")
            rows = checked_rows("rows", rows, batch)
            if len(rows) and (rows[0] < 0 or rows[-1] >= (self._rows or 0)):
                raise ValueError(f"rows= are places in the batch that is applied, from 0 to {(self._rows or 0) - 1}")
        if times is not None:
            if self._now is None:
                raise ValueError("times= has a meaning in on_time only")
            times = checked_rows("times", times, batch)
        elif self._now is not None:
            times = np.full(batch.num_rows, self._now, np.int64)
        if watermarks is not None:
            if rows is None and times is None:
                raise ValueError("watermarks= has a meaning in on_time, and in apply_rows beside rows=")
            watermarks = checked_numbers("watermarks", watermarks, batch)
        if batch.num_rows:
            columns = conforming(kind, batch, self.node.id, self.node.component.checks_values)
            self.some.append(Some(channel, columns, rows, times, watermarks))

    def delivered(self) -> int:
        """How many of the rows gave something."""
        count = self._rows or 0
        if not self.some or any(one.rows is None for one in self.some):
            return count if self.some else 0
        gave = np.zeros(count, bool)
        for one in self.some:
            gave[one.rows] = True
        return int(gave.sum())


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
