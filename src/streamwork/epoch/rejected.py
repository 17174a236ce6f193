"""Separates the rows of a checkpoint that a sink accepts from those that it rejects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import to_structs
from streamwork.delivery.bisection import rejected_rows

Rejected = list[tuple[Event, str]]  # (row, why)


def sift(
    rows: Sequence[pa.RecordBatch], rejects: Callable[[Sequence[pa.RecordBatch]], str], kind: type[Event]
) -> tuple[list[pa.RecordBatch], Rejected]:
    """The rows that the sink accepts together, in their order, and the rejected ones with the reason.

    A row may be rejected only because of one before it (the same key twice); so each piece is tried after what is accepted.
    """
    accepted: list[pa.RecordBatch] = []
    rejected: Rejected = []

    def attempt(piece: pa.RecordBatch, start: int) -> str | None:
        if why := rejects([*accepted, piece]):
            return why
        accepted.append(piece)
        return None

    for batch in rows:
        if batch.num_rows:
            found = list(rejected_rows(batch, attempt))
            rejected += [(to_structs(kind, batch.slice(place, 1))[0], why) for place, why in found]
    return accepted, rejected
