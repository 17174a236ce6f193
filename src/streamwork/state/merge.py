"""Several state files as one: of each key, the row of the last file that has one. Column work only, no records are made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

ROW = "__row"


def merge(tables: Sequence[pa.Table], key: Sequence[str], keep_deleted: bool = False) -> pa.Table:
    """Rows of one schema, the oldest table first. Rows of keys that are gone are left out unless asked for."""
    together = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    if len(tables) > 1:
        numbered = together.select(list(key)).append_column(ROW, pa.array(np.arange(together.num_rows)))
        last = numbered.group_by(list(key), use_threads=False).aggregate([(ROW, "max")]).column(f"{ROW}_max")
        together = together.take(pa.array(np.sort(last.to_numpy())))
    if not keep_deleted:
        gone = together.column("__deleted").to_numpy()
        together = together.filter(pa.array(~gone)) if gone.any() else together
    return together
