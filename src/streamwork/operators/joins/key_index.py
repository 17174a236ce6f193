"""Finds rows by their key in columns that do not change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components.hashing import hash_columns
from streamwork.operators.joins.matching import Array, expanded


class KeyIndex:
    """An index over key columns: sorted hashes. A key with a null is not found."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = columns
        hashes = hash_columns(columns, len(columns[0]))
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def matches(self, keys: Sequence[pa.Array]) -> tuple[Array, Array]:
        """(row of `keys`, row of the columns) of all rows with equal keys, ordered by row of `keys`, then by row."""
        hashes = hash_columns(keys, len(keys[0]))
        starts = np.searchsorted(self._hashes, hashes)
        rows, places = expanded(starts, np.searchsorted(self._hashes, hashes, "right") - starts)
        found = self._order[places]
        same = np.ones(len(rows), bool)
        for mine, theirs in zip(self._columns, keys, strict=True):
            equal = pc.equal(mine.take(pa.array(found)), theirs.take(pa.array(rows)))
            same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
        return rows[same], found[same]
