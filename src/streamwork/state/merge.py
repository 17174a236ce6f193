"""Several state files as one: of each key, the row of the last file that has one. Column work only, no records are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import batches
from streamwork.components.batches import take

ROW = "__row"


def merge(tables: Sequence[pa.Table], key: Sequence[str], keep_deleted: bool = False) -> pa.Table:
    """Rows of one schema, the oldest table first. Rows of keys that are gone are left out unless asked for."""
    together = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    if len(tables) > 1:
        together = take(together, np.sort(_last_rows(together.select([*key, "__group"]), key)))
    if not keep_deleted:
        gone = together.column("__deleted").to_numpy()
        together = together.filter(pa.array(~gone)) if gone.any() else together
    return together


def _last_rows(keys: pa.Table, key: Sequence[str]) -> np.ndarray[Any, Any]:
    """Of each key, the number of its last row.

    Arrow makes one array of all distinct values. Keys beyond the limit of an array are processed in several passes, each over
    some of the key groups: all rows of a key have the same one.
    """
    keys = keys.append_column(ROW, pa.array(np.arange(keys.num_rows)))
    passes = -(-keys.nbytes // batches.MOST_BYTES)
    if passes < 2:
        return _last(keys, key)
    passed = keys.column("__group").to_numpy() % passes
    return np.concatenate([_last(keys.filter(pa.array(passed == number)), key) for number in range(passes)])


def _last(keys: pa.Table, key: Sequence[str]) -> np.ndarray[Any, Any]:
    found = keys.group_by(list(key), use_threads=False).aggregate([(ROW, "max")])
    return np.asarray(found.column(f"{ROW}_max").to_numpy())
