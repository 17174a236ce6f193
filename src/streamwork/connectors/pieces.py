"""Batches of a size that is worth its overhead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamwork.components.columns import distinct

PIECE = 8_192  # rows: small batches are gathered, because each piece costs something
TOGETHER = 1_000_000  # rows: of more, memory would tell


def gathered(batches: Iterator[pa.RecordBatch], piece: int = PIECE) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth their overhead."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= piece:
            yield _joined(waiting)
            waiting, rows = [], 0
    if rows:
        yield _joined(waiting)


def newest(batches: Iterator[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Of several rows of one key only the last one, as far as rows are looked at together: the others would not show."""
    for batch in gathered(batches, TOGETHER):
        codes, keys = distinct(batch, key)
        if keys.num_rows == batch.num_rows:
            yield batch
            continue
        last = np.empty(keys.num_rows, np.int64)
        last[codes] = np.arange(batch.num_rows)  # where a place is given several times, the last counts
        yield batch.take(pa.array(np.sort(last)))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
