"""The event times of a batch, in microseconds (`components.times`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamwork.components.columns import Columns
from streamwork.components.field_types import in_utc
from streamwork.components.times import microseconds
from streamwork.flow.batch import Given
from streamwork.flow.lineage import Array

_TIMES = pa.timestamp("us", tz="UTC")


def times_of(given: Given, field: str) -> Array:
    """The values of a field of times, in microseconds."""
    if isinstance(given, Columns):
        column = given.batch.column(field)
    else:
        column = pa.array([in_utc(getattr(event, field)) for event in given], _TIMES)
    return np.asarray(column.cast(pa.int64()).to_numpy())


def latest(given: Given, field: str) -> int:
    """The largest value of a field of times, in microseconds; there must be one."""
    if isinstance(given, Columns):
        return given.latest(field)
    return microseconds(max(in_utc(getattr(event, field)) for event in given))
