"""Rows that a sink refuses for good are found by halving."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import to_structs

Rejected = list[tuple[Event, str]]  # (row, why)


def sift(
    rows: Sequence[pa.RecordBatch], rejects: Callable[[Sequence[pa.RecordBatch]], str], kind: type[Event]
) -> tuple[list[pa.RecordBatch], Rejected]:
    """The rows that can be had together, in their order, and the others with the reason.

    A row may be refused only because of one before it (the same key twice); so each piece is tried after what is accepted.
    """
    accepted: list[pa.RecordBatch] = []
    refused: Rejected = []

    def take(piece: pa.RecordBatch) -> None:
        why = rejects([*accepted, piece])
        if not why:
            accepted.append(piece)
        elif piece.num_rows == 1:
            refused.append((to_structs(kind, piece)[0], why))
        else:
            half = piece.num_rows // 2
            take(piece.slice(0, half))
            take(piece.slice(half))

    for batch in rows:
        if batch.num_rows:
            take(batch)
    return accepted, refused
