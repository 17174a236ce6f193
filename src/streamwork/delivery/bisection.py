"""Bisection: finds the rows that a sink rejects among those that it is given together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

W = TypeVar("W")


def rejected_rows(
    rows: pa.RecordBatch, attempt: Callable[[pa.RecordBatch, int], W | None], start: int = 0
) -> Iterator[tuple[int, W]]:
    """The place of each rejected row, and why it is rejected, in order.

    `attempt` gets a piece of the rows and the place of its first row. It returns None if the sink accepts the piece, or why it
    rejects it; then both halves of the piece are attempted. A row is yielded before rows behind it are attempted.
    """
    why = attempt(rows, start)
    if why is None:
        return
    if rows.num_rows == 1:
        yield start, why
        return
    half = rows.num_rows // 2
    yield from rejected_rows(rows.slice(0, half), attempt, start)
    yield from rejected_rows(rows.slice(half), attempt, start + half)
