"""The crc32 of every row of a column, as `zlib.crc32` gives it for one: whole columns at a time, two bytes at a step.

A crc is carried on from one piece of a row's bytes to the next, so a row may come in parts: `begin`, any number of `update`
and `update_number`, then `end`.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

Crcs = np.ndarray[Any, np.dtype[np.uint32]]
_POLYNOMIAL = np.uint32(0xEDB88320)
_ROWS = 16_384  # rows at a time: the working set stays in the processor's cache
_LONG = 1_024  # bytes: longer rows are faster one by one
_ALL = np.uint32(0xFFFFFFFF)


def begin(rows: int) -> Crcs:
    return np.full(rows, _ALL, np.uint32)


def end(crcs: Crcs) -> Crcs:
    return crcs ^ _ALL


def update(crcs: Crcs, column: pa.Array) -> None:
    """Update `crcs` with the bytes of each row of a text or binary column without nulls."""
    for start in range(0, len(column), _ROWS):
        _update(crcs[start : start + _ROWS], column.slice(start, _ROWS))


def update_number(crcs: Crcs, numbers: np.ndarray[Any, Any]) -> None:
    """Update `crcs` with the four bytes of each number, the highest first."""
    crcs[:] = _through(crcs, numbers.astype(">u4").view(np.uint8).reshape(-1, 4))


def lengths(column: pa.Array) -> np.ndarray[Any, Any]:
    """The number of bytes of each row of a text or binary column."""
    return np.diff(_offsets(column))


def _update(crcs: Crcs, column: pa.Array) -> None:
    offsets = _offsets(column)
    sizes, content = np.diff(offsets), column.buffers()[2]
    if content is None:  # only empty rows
        return
    data = np.frombuffer(content, np.uint8)
    found = np.unique(sizes).tolist()
    if len(found) == 1 and found[0] <= _LONG:
        crcs[:] = _through(crcs, data[offsets[0] : offsets[-1]].reshape(len(sizes), found[0]))
        return
    for size in found:
        rows = np.flatnonzero(sizes == size)
        if size > _LONG:
            for row in rows.tolist():
                one = zlib.crc32(data[offsets[row] : offsets[row + 1]].tobytes(), int(crcs[row] ^ _ALL))
                crcs[row] = np.uint32(one) ^ _ALL
            continue
        crcs[rows] = _through(crcs[rows], data[offsets[rows, None] + np.arange(size)])


def _through(crcs: Crcs, matrix: np.ndarray[Any, Any]) -> Crcs:
    """The crcs, updated with each row of bytes."""
    two, one = _tables()
    size = matrix.shape[1]
    columns = np.ascontiguousarray(matrix.T).astype(np.uint32)
    for place in range(0, size - 1, 2):
        low = (crcs ^ columns[place] ^ (columns[place + 1] << np.uint32(8))) & np.uint32(0xFFFF)
        crcs = two[low] ^ (crcs >> np.uint32(16))
    if size % 2:
        crcs = one[(crcs ^ columns[-1]) & np.uint32(0xFF)] ^ (crcs >> np.uint32(8))
    return crcs


def _offsets(column: pa.Array) -> np.ndarray[Any, Any]:
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    offsets = np.frombuffer(column.buffers()[1], np.int64 if wide else np.int32)
    return offsets[column.offset : column.offset + len(column) + 1]


@cache
def _tables() -> tuple[Crcs, Crcs]:
    """What two bytes, and what one byte, do to a crc that is 0 above them."""
    two = np.arange(1 << 16, dtype=np.uint32)
    one = np.arange(1 << 8, dtype=np.uint32)
    for table, bits in ((two, 16), (one, 8)):
        for _ in range(bits):
            table[:] = np.where(table & 1, _POLYNOMIAL ^ (table >> np.uint32(1)), table >> np.uint32(1))
    return two, one
