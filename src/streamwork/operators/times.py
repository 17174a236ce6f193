"""The times of operators on columns, in microseconds (`components.times`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.table_operator import NEVER, TableCollector
from streamwork.components.times import microseconds

Array = np.ndarray[Any, Any]
_TIMES = pa.timestamp("us", tz="UTC")


def numbers_of(column: pa.Array) -> Array:
    """An Arrow column of times as microseconds."""
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False))


def as_times(numbers: Array) -> pa.Array:
    """Microseconds as an Arrow column of times."""
    return pa.array(numbers.view(np.int64), pa.int64()).cast(_TIMES)


def minimum_of(collector: TableCollector) -> int:
    """How far event time has come in all inputs before this wave; `NEVER` while an input has brought none."""
    return NEVER if collector.watermark is None else microseconds(collector.watermark)
