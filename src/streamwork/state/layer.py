"""Rows of state that are not records in memory: columns, with an index by key.

Most keys of a large state rest. As columns they take a fraction of the memory that Python objects take, and large layers are
kept in a file that the system maps in and out. Rows are found by the hash of their key.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.batches import compacted, take
from streamwork.components.hashing import hash_columns
from streamwork.state.table_columns import equal

Array = np.ndarray[Any, Any]
NO_HASHES = np.empty(0, np.uint64)
SPILL_BYTES = 8_000_000
"""Layers from this size on live in a file."""


class Layer:
    """At most one row per key."""

    def __init__(self, rows: pa.Table, key: Sequence[str]) -> None:
        keys = rows.select(list(key)).to_batches()
        hashes = np.concatenate([hash_columns(batch.columns, batch.num_rows) for batch in keys] or [NO_HASHES])
        order = np.argsort(hashes, kind="stable")
        self.rows = _resting(rows)
        self._key = list(key)
        self._hashes, self._order = hashes[order], order.astype(np.uint32)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def find(self, hashes: Array, keys: pa.RecordBatch) -> tuple[Array, Array]:
        """(place in `keys`, row) of the keys that have a row, ordered by row. `hashes` are those of the keys."""
        asked, rows = self.candidates(hashes)
        order = np.argsort(rows, kind="stable")
        asked, rows = asked[order], rows[order]
        mine, others = take(self.rows.select(self._key), rows), keys.take(pa.array(asked))
        same = np.ones(len(rows), bool)
        for name in self._key:
            same &= equal(mine.column(name), others.column(name))
        return asked[same], rows[same]

    def take(self, rows: Array) -> pa.Table:
        """Some rows, whose numbers are in ascending order."""
        return take(self.rows, rows)

    def candidates(self, hashes: Array) -> tuple[Array, Array]:
        """(place in `hashes`, row) of every candidate. Two keys can have one hash, so the caller compares the keys."""
        asked = np.argsort(hashes)  # sorted lookups touch neighbouring memory, which is much faster
        hashes = hashes[asked]
        low = np.searchsorted(self._hashes, hashes, side="left")
        there = low < len(self._hashes)
        there[there] = self._hashes[low[there]] == hashes[there]
        asked, low, hashes = asked[there], low[there], hashes[there]
        count = np.searchsorted(self._hashes, hashes, side="right") - low
        places = np.repeat(asked, count)
        within = np.arange(len(places)) - np.repeat(np.cumsum(count) - count, count)
        return places, self._order[np.repeat(low, count) + within]


def _resting(rows: pa.Table) -> pa.Table:
    """The same rows in few pieces; large ones in a file that is removed when it is no longer mapped."""
    rows = compacted(rows)
    if rows.nbytes < SPILL_BYTES:
        return rows
    with tempfile.NamedTemporaryFile(prefix="streamwork-state-", suffix=".arrow", delete=False) as file:
        path = Path(file.name)
    try:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            for batch in rows.to_batches():
                writer.write_batch(batch)
        with pa.memory_map(str(path)) as mapped:
            return pa.ipc.open_file(mapped).read_all()
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
