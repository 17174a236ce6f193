"""Rows that a sink refuses for good: found by halving, and kept as dead letters.

dead-letters/SINK/000000000042.parquet    what sink SINK refused of checkpoint 42, and why

A file is written before the rest of its epoch is committed. A crash in between finds the same rows again and writes the same
file again, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.world import Disk

SCHEMA = pa.schema(
    [
        pa.field("component", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("event", pa.string(), nullable=False),  # JSON
    ]
)
Rejected = list[tuple[dict[str, Any], str]]  # (row, why)


def sift(
    rows: Sequence[pa.RecordBatch], rejects: Callable[[Sequence[pa.RecordBatch]], str]
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
            refused.append((piece.to_pylist()[0], why))
        else:
            half = piece.num_rows // 2
            take(piece.slice(0, half))
            take(piece.slice(half))

    for batch in rows:
        if batch.num_rows:
            take(batch)
    return accepted, refused


def dead_letters_of(sink: str, epoch: int) -> str:
    """Where they are, below the job's folder."""
    return f"dead-letters/{sink}/{epoch:012d}.parquet"


def keep_dead_letters(disk: Disk, folder: Path, sink: str, epoch: int, refused: Rejected) -> Path:
    """Write what was refused, durably."""
    table = pa.table(
        {
            "component": [sink] * len(refused),
            "epoch": [epoch] * len(refused),
            "error": [why for _, why in refused],
            "attempts": [1] * len(refused),
            "event": [msgspec.json.encode(row).decode() for row, _ in refused],
        },
        schema=SCHEMA,
    )
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    path = folder / dead_letters_of(sink, epoch)
    disk.make_folder(path.parent)
    disk.replace(path, buffer.getvalue().to_pybytes())
    return path
