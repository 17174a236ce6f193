"""Batches of a size that is worth its overhead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamwork.components.batches import joined
from streamwork.components.columns import distinct

PIECE = 8_192  # rows: small batches are gathered, because each piece costs something
TOGETHER = 1_000_000  # rows, within the limit of a batch


def gathered(batches: Iterable[pa.RecordBatch], piece: int = PIECE) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth their overhead, and within the limit of a batch."""
    return (batch for batch in joined(batches, piece) if batch.num_rows)


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
