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

from streamwork.components.batches import compacted

SPILL_BYTES = 8_000_000
"""Layers from this size on live in a file."""


class Layer:
    """At most one row per key."""

    def __init__(self, rows: pa.Table, key: Sequence[str]) -> None:
        hashes = hashed([rows.column(name) for name in key])
        order = np.argsort(hashes, kind="stable")
        self.rows = _resting(rows)
        self._key = list(key)
        self._hashes, self._order = hashes[order], order.astype(np.uint32)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def find(self, hashes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
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


def hashed(columns: Sequence[pa.ChunkedArray]) -> np.ndarray[Any, Any]:
    """One number for each row, the same for the same key values."""
    from pandas.util import hash_array  # here, because only large states need pandas, and it takes its time

    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        total = total * np.uint64(1_000_003) ^ hash_array(_plain(column), categorize=False)
    return total


def _plain(column: Any) -> np.ndarray[Any, Any]:
    """As an array that pandas can hash. How depends on the type alone, so that one key has one hash wherever it stands."""
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_boolean(kind):
        column = column.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        column = column.cast(pa.string())
    if not pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False), object)
    values = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), np.int64(-7_046_029_254_386_353_131), values)


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
