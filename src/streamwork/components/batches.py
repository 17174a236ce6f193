"""Arrow batches that stay within Arrow's limits.

An Arrow array of text, bytes or lists addresses its content with 32 bits: 2 GiB of text, 2**31 items of lists. Arrow answers a
larger one with several chunks or with an error, depending on the function. So a table is never assumed to be one batch, and
batches are joined only here: no batch that leaves this module is larger than `MOST_BYTES`, unless it is one row.

A test (``tests/components/test_batches.py``) refuses `combine_chunks`, `concat_batches` and the like anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from streamwork.components.field_types import Oversized

MOST_BYTES = 1 << 27
"""The most bytes of a batch. A list item takes at least one bit, so its lists have at most 2**30 items. Tests lower it."""

MOST_ARRAY_BYTES = 1 << 31

R = TypeVar("R")


def size_of(batch: pa.RecordBatch) -> int:
    """The bytes of a batch. Bytes outside a slice are not counted if the total would be over the limit."""
    whole = int(batch.get_total_buffer_size())  # much cheaper
    return whole if whole <= MOST_BYTES else int(batch.nbytes)


def within(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches within the limit."""
    if batch.num_rows < 2 or size_of(batch) <= MOST_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from within(batch.slice(0, half))
    yield from within(batch.slice(half))


def gathered(batches: Iterable[pa.RecordBatch], rows: int | None = None) -> Iterator[list[pa.RecordBatch]]:
    """The same rows in runs of batches: each run is within the limit, and all but the last of those that are not cut off by the
    limit have at least `rows` rows. Without `rows` a run is as long as the limit allows.
    """
    run: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        for piece in within(batch):
            more = size_of(piece)
            if run and size + more > MOST_BYTES:
                yield run
                run, count, size = [], 0, 0
            run.append(piece)
            count, size = count + piece.num_rows, size + more
            if rows is not None and count >= rows:
                yield run
                run, count, size = [], 0, 0
    if run:
        yield run


def joined(batches: Iterable[pa.RecordBatch], rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """The same rows in few batches: as `gathered`, each run as one batch."""
    for run in gathered(batches, rows):
        yield run[0] if len(run) == 1 else pa.concat_batches(run)


def few_arrays(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """The same values as one array if that is within the limit."""
    return [pa.concat_arrays(arrays)] if sum(array.nbytes for array in arrays) <= MOST_BYTES else list(arrays)


def one_array(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """The same values as one array. Raises Oversized."""
    if len(arrays) == 1:
        return arrays[0]
    if sum(array.nbytes for array in arrays) >= MOST_ARRAY_BYTES:
        raise Oversized(arrays, "less than 2 GiB of text or bytes")
    return pa.concat_arrays(arrays) if arrays else pa.nulls(0, kind)


def compacted(table: pa.Table) -> pa.Table:
    """The same rows in as few chunks as the limit allows."""
    return pa.Table.from_batches(joined(table.to_batches()), table.schema)


def take(table: pa.Table, rows: np.ndarray[Any, Any]) -> pa.Table:
    """Some rows of a table, batch by batch; `rows` are their numbers in ascending order, a number may repeat."""
    batches, start = [], 0
    for batch in table.to_batches():
        low, high = np.searchsorted(rows, [start, start + batch.num_rows]).tolist()
        if high > low:
            mine = rows[low:high] - start
            whole = len(mine) == batch.num_rows and np.array_equal(mine, np.arange(len(mine)))
            batches.append(batch if whole else batch.take(pa.array(mine)))
        start += batch.num_rows
    return pa.Table.from_batches(batches, table.schema)


def halving(make: Callable[[Any], R], given: Any) -> Iterator[R]:
    """`make(given)` as a list; if it raises Oversized, of the halves of `given`, in order."""
    try:
        made = make(given)
    except Oversized:
        if len(given) < 2:
            raise
        half = len(given) // 2
        yield from halving(make, given[:half])
        yield from halving(make, given[half:])
        return
    yield made
