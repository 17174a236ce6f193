"""Merges small batches, and drops rows that a later row of the same key replaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamwork.components.batches import joined
from streamwork.components.columns import distinct

PIECE = 8_192  # rows: smaller batches are merged, because each batch has a fixed cost
TOGETHER = 1_000_000  # rows, within the limit of a batch


def gathered(batches: Iterable[pa.RecordBatch], piece: int = PIECE) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about `piece` rows, within the limit of a batch."""
    return (batch for batch in joined(batches, piece) if batch.num_rows)


def newest(batches: Iterator[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Of several rows of one key within a batch, only the last one: it would replace the others."""
    for batch in gathered(batches, TOGETHER):
        codes, keys = distinct(batch, key)
        if keys.num_rows == batch.num_rows:
            yield batch
            continue
        last = np.empty(keys.num_rows, np.int64)
        last[codes] = np.arange(batch.num_rows)  # for a repeated index numpy keeps the last value
        yield batch.take(pa.array(np.sort(last)))
