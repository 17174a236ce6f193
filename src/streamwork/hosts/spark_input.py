"""The input of a stage: the parcels of the stage before, and the rows of sources in Spark's JVM.

    __source    which source a row is of; null for a parcel
    __order     the parcel's order, or the row's offset
    __rowsN     the fields of a row of source N
    __counts    of a source with filters, in its last row: how many rows got as far as each of them

All go through one exchange to the partition of their instance, and are sorted there: parcels, then source by source in the order
of offsets. So a slice is read and filtered by as many tasks as Spark likes, and still comes in order. An instance runs whether
rows come or not: an input that is never empty is part of it, so Spark cannot plan it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Slice
from streamwork.engine import Parcel
from streamwork.engine.reading import Read
from streamwork.errors import JobFailed
from streamwork.hosts.spark_rows import ROW_SCHEMA, parcels
from streamwork.hosts.spark_table import LAST

Take = Callable[[str, pa.Array, pa.RecordBatch], Slice]  # source, offsets, rows


def stage_input(session: Any, before: Any, partitions: int, slices: Sequence[Any]) -> Any:
    """The data frame that a stage's tasks take; `before` is None for the first stage."""
    if not slices:
        if before is None:
            return session.range(partitions, numPartitions=partitions)
        return before.repartitionById(partitions, "__instance").sortWithinPartitions("__order")
    if before is None:
        columns = [column.split() for column in ROW_SCHEMA.split(", ")]
        nothing = [f"cast({'null' if kind == 'binary' else 0} AS {kind}) AS {name}" for name, kind in columns]
        before = session.range(1, numPartitions=1).selectExpr(*nothing)
    for rows in slices:
        before = before.unionByName(rows, allowMissingColumns=True)
    return before.repartitionById(partitions, "__instance").sortWithinPartitions("__source", "__order")


class Arrivals:
    """The input of one partition of a stage. Parcels must be read first, then the sources in their order."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def parcels(self) -> Iterator[Parcel]:
        for batch in self._batches:
            if "head" not in batch.schema.names:
                continue  # a placeholder, so that Spark runs the task
            count = batch.column("__source").null_count if "__source" in batch.schema.names else batch.num_rows
            mine = batch.slice(0, count)
            yield from parcels(
                [mine.filter(mine.column("head").is_valid()) if mine.column("head").null_count else mine]
            )
            if count < batch.num_rows:
                self._rest = batch.slice(count)
                return

    def reader(self, name: str, number: int, filters: tuple[str, ...], take: Take) -> Read:
        """Reads the slice of a source; to be used once."""

        def read(partition: str, start: int, end: int) -> Iterator[Slice]:
            last, came, counts = start - 1, 0, None
            for batch in self._of(number):
                offsets = batch.column("__order")
                if filters and offsets[-1].as_py() == LAST:
                    counts = batch.column("__counts")[-1].as_py()
                    batch, offsets = batch.slice(0, batch.num_rows - 1), offsets[:-1]
                if batch.num_rows:
                    last = _checked(name, last, offsets)
                    piece = take(name, offsets, pa.RecordBatch.from_struct_array(batch.column(f"__rows{number}")))
                    came += len(piece.given)
                    piece.left_out = dict.fromkeys(filters, 0)
                    yield piece
            if filters:
                if counts is None or counts[-1] != came:
                    raise _unstable(name, start, end, counts[-1] if counts else 0, came)
                left_out = [before - after for before, after in pairwise(counts)]
                yield Slice([], end, left_out=dict(zip(filters, left_out, strict=True)))

        return read

    def drain(self) -> None:
        """Consume the rest, so that the worker can be reused."""
        for _ in self._batches:
            pass

    def _of(self, number: int) -> Iterator[pa.RecordBatch]:
        while True:
            batch, self._rest = self._rest if self._rest is not None else next(self._batches, None), None
            if batch is None:
                return
            count = int(np.searchsorted(batch.column("__source").to_numpy(zero_copy_only=False), number, "right"))
            if count < batch.num_rows:
                self._rest = batch.slice(count)
            if count:
                yield batch.slice(0, count)
            if self._rest is not None:
                return


def _checked(name: str, last: int, offsets: pa.Array) -> int:
    """The last offset, if each is larger than the one before it."""
    found = np.concatenate(([last], offsets.to_numpy()))
    same = np.flatnonzero(found[1:] <= found[:-1])
    if len(same):
        raise JobFailed(
            "SW-SOURCE-OFFSET",
            f"{name}: two rows have the offset {found[same[0] + 1]}",
            "give every row an offset of its own: only then is there one order, and a place between two rows to stop at",
        )
    return int(found[-1])


def _unstable(name: str, start: int, end: int, counted: int, came: int) -> JobFailed:
    return JobFailed(
        "SW-SOURCE-UNSTABLE",
        f"{name}: of the offsets from {start} to {end} Spark counted {counted} rows, and brought {came}",
        "let `load` give the same rows each time: no chance, no clock, and nothing is changed that is there",
    )
