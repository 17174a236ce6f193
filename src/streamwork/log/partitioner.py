"""Assigns events to partitions: by the key groups of `components.keys`, or round robin without a key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.keys import Key


class Partitioner:
    """Splits batches by partition."""

    def __init__(self, event: type[Event], key: tuple[str, ...], partitions: int, groups: int) -> None:
        self._key = Key.of(event, key) if key else None
        self._partitions = partitions
        self._groups = groups
        self._turn = 0

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batch's events by partition, in their order. Partitions without events are left out."""
        if self._partitions == 1 or self._key is None:
            yield self._turn, batch
            self._turn = (self._turn + 1) % self._partitions
            return
        columns = [batch.column(name) for name in self._key.fields]
        targets = self._key.column_instances(columns, self._partitions, self._groups)
        counts = np.bincount(targets, minlength=self._partitions)
        if batch.num_rows in counts:
            yield int(targets[0]), batch
            return
        # One stable sort by partition (`take`), then slices: cheaper than one filter per partition.
        ordered = batch.take(pa.array(np.argsort(targets, kind="stable")))
        start = 0
        for partition, count in enumerate(counts.tolist()):
            if count:
                yield partition, ordered.slice(start, count)
                start += count
