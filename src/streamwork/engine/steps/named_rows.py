"""The rows, times and watermarks that an emitted batch names: ``emit_batch(batch, rows=...)``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.flow.lineage import Array


def checked_rows(name: str, given: Any, batch: pa.RecordBatch) -> Array:
    """One whole number per row of the batch, in ascending order; raises ValueError."""
    found = checked_numbers(name, given, batch)
    if len(found) > 1 and (found[1:] < found[:-1]).any():
        raise ValueError(f"{name}= must ascend: sort what is emitted")
    return found


def checked_numbers(name: str, given: Any, batch: pa.RecordBatch) -> Array:
    """One whole number per row of the batch; raises ValueError."""
    found: Array = np.asarray(given)
    if found.shape != (batch.num_rows,) or (len(found) and found.dtype.kind not in "iu"):
        raise ValueError(f"{name}= has one whole number per emitted row, {batch.num_rows}, and not {found.shape}")
    return found.astype(np.int64, copy=False)
