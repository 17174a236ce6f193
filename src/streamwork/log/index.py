"""``OFFSET.index``: the locations of the batches of a segment, so that readers need not scan it.

The file is an Arrow stream of one batch, framed like the segments. It is a cache: it may cover only the beginning of
its segment. A reader that finds it missing or wrong scans the segment and writes it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from streamwork.log.entry import Entry
from streamwork.log.frame import BadFrame, FrameEncoder, FrameTags, decode, find_frame
from streamwork.world import Disk

_SCHEMA = pa.schema(
    [
        pa.field(name, pa.string() if name == "transaction" else pa.int64(), nullable=False)
        for name in Entry.__struct_fields__
    ]
)
_ENCODER = FrameEncoder(_SCHEMA)


def index_path(segment: Path) -> Path:
    return segment.with_suffix(".index")


def write_index(disk: Disk, segment: Path, base: int, entries: Sequence[Entry]) -> None:
    """Write the index. An OSError is ignored: the index is only a cache."""
    columns = [[getattr(entry, name) for entry in entries] for name in _SCHEMA.names]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
    frame = FrameEncoder(_SCHEMA).encode(batch, FrameTags(base, len(entries), 0))
    with contextlib.suppress(OSError):
        disk.replace(index_path(segment), _ENCODER.prologue + bytes(frame))


def read_index(disk: Disk, segment: Path, base: int, start: int, size: int) -> list[Entry] | None:
    """The entries of the index of `segment`; None if it is missing, damaged or does not match the segment.

    `start` is the byte at which the segment's first batch begins, `size` the segment's length.
    """
    try:
        data = disk.read(index_path(segment))
    except (FileNotFoundError, OSError):
        return None
    try:
        if not data.startswith(_ENCODER.prologue):
            return None
        frame = find_frame(memoryview(data), len(_ENCODER.prologue), len(_ENCODER.prologue))
        if frame is None or frame.end != len(data) or frame.info.base != base:
            return None
        batch = decode(frame, pa.py_buffer(data).slice(frame.position), _SCHEMA)
    except BadFrame:
        return None
    entries = [Entry(*row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    return entries if _fits(entries, base, start, size) else None


def _fits(entries: Sequence[Entry], base: int, position: int, size: int) -> bool:
    for entry in entries:
        if entry.base != base or entry.position != position:
            return False
        base, position = entry.end, entry.next_position
    return position <= size
