"""The rows of what a chain receives through an exchange."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from streamwork.flow.channel import Data
from streamwork.flow.lineage import Array


def rows_of(data: Data) -> tuple[list[Array | None], Array]:
    """(the row of each event, part by part; the row that each advance of event time is behind)

    Each event is a row of its own: in the order of moments, then in that of parts. Row 0 is before all of them. None stands for
    the rows 0, 1, 2, ... of a part that is alone and carries no moments.
    """
    count = len(data)
    if len(data.parts) < 2 and all(part.batch.moments is None for part in data.parts):
        return [None] * len(data.parts), np.full(len(data.advances.times), max(0, count - 1))
    moments = [
        np.zeros(len(part.batch), np.int64) if part.batch.moments is None else part.batch.moments for part in data.parts
    ]
    every = np.concatenate(moments)
    order = np.argsort(every, kind="stable")
    rows = np.empty(count, np.int64)
    rows[order] = np.arange(1, count + 1)
    bounds = np.cumsum([0, *map(len, moments)]).tolist()
    found: list[Array | None] = [rows[start:end] for start, end in pairwise(bounds)]
    return found, every[order].searchsorted(data.advances.moments, "right")
