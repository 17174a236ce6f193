"""Groups of events by key and window, without a Python object per event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.columns import distinct
from streamwork.operators.aggregates.columns import Groups

Array = np.ndarray[Any, Any]


def grouped(keys: pa.RecordBatch, numbers: Sequence[Array]) -> Groups:
    """The groups of rows with equal keys and equal numbers."""
    return finer(*key_codes(keys), numbers)


def finer(codes: Array, count: int, numbers: Sequence[Array]) -> Groups:
    """The groups of rows with equal codes, of which there are `count`, and equal numbers."""
    for column in numbers:
        codes, count = _with_numbers(codes, count, column)
    return compact(codes, count)


def key_codes(keys: pa.RecordBatch) -> tuple[Array, int]:
    """(for each row, the number of its key; how many there are)"""
    codes, found = distinct(keys, keys.schema.names)
    return codes, found.num_rows


def _with_numbers(codes: Array, count: int, numbers: Array) -> tuple[Array, int]:
    """Finer codes. If the numbers are near each other, a code is computed; else numbers are encoded first."""
    if not len(numbers):
        return codes, count
    low, high = int(numbers.min()), int(numbers.max())
    width = high - low + 1
    if count * width > max(4 * len(numbers), 1 << 16):
        encoded = pa.array(numbers).dictionary_encode()
        numbers, low, width = encoded.indices.to_numpy(), 0, len(encoded.dictionary)
        if count * width > max(4 * len(numbers), 1 << 16):
            codes = pa.array(codes.astype(np.int64) * width + numbers).dictionary_encode().indices.to_numpy()
            return codes, int(codes.max()) + 1
    if width == 1:
        return codes, count
    return codes.astype(np.int64) * width + (numbers - low), count * width


def compact(codes: Array, count: int) -> Groups:
    """The same groups, numbered without those that have no row."""
    sizes = np.bincount(codes, minlength=count)
    used = np.flatnonzero(sizes)
    if len(used) == count:
        found = Groups(codes, count)
    else:
        renumbered = np.zeros(count, np.int64)
        renumbered[used] = np.arange(len(used))
        found = Groups(renumbered[codes], len(used))
    found.sizes = sizes[used]
    return found
