"""Which partition an event belongs to: by key through the key groups of `components.keys`, else in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import distinct
from streamwork.components.keys import Key, instance_of

_REMEMBER = 1 << 18  # keys whose partition is remembered


class Partitioner:
    """Splits batches. Keys are hashed once and then remembered, across batches."""

    def __init__(self, event: type[Event], key: tuple[str, ...], partitions: int, groups: int) -> None:
        self._key = Key.of(event, key) if key else None
        self._partitions = partitions
        self._groups = groups
        self._turn = 0
        self._known: dict[Any, int] = {}

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batch's events per partition, in order; partitions without events are left out."""
        if self._partitions == 1 or self._key is None:
            yield self._turn, batch
            self._turn = (self._turn + 1) % self._partitions
            return
        targets = self._targets(batch)
        counts = np.bincount(targets, minlength=self._partitions)
        if batch.num_rows in counts:
            yield int(targets[0]), batch
            return
        # One `take` that sorts by partition, stable so that order is kept, then slices: cheaper than a filter each.
        ordered = batch.take(pa.array(np.argsort(targets, kind="stable")))
        start = 0
        for partition, count in enumerate(counts.tolist()):
            if count:
                yield partition, ordered.slice(start, count)
                start += count

    def _targets(self, batch: pa.RecordBatch) -> Any:
        """The partition of each row."""
        assert self._key is not None
        places, found = distinct(batch, self._key.fields)
        parts = [column.to_pylist() for column in found.columns]
        values = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        if len(self._known) > _REMEMBER:
            self._known.clear()
        targets = list(map(self._known.get, values))
        if None in targets:
            self._learn([value for value, target in zip(values, targets, strict=True) if target is None])
            targets = [self._known[value] for value in values]
        return np.array(targets, np.uint16)[places]

    def _learn(self, values: list[Any]) -> None:
        assert self._key is not None
        groups = self._key.groups(values, self._groups)
        new = zip(values, [instance_of(group, self._partitions, self._groups) for group in groups], strict=True)
        self._known.update(new)
