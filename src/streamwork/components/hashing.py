"""64-bit hashes of key columns, whole batches at a time. No Python object is made of a value.

Equal rows have equal hashes, in every process. Different rows may have equal hashes, so callers compare the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]
_NULL = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_HALF = np.uint64(33)
_LONG = 512
"""Bytes. Longer values are hashed one by one."""


def hash_columns(columns: Sequence[pa.Array], rows: int) -> Array:
    """One number per row."""
    return combined([hash_column(column) for column in columns], rows)


def combined(hashes: Sequence[Array], rows: int) -> Array:
    """One number per row, of the hashes of its columns."""
    total = np.zeros(rows, np.uint64)
    for one in hashes:
        total *= np.uint64(31)
        total += one
        total = mix(total)
    return total


def distinct_numbers(values: Array) -> Array:
    """The different values, in ascending order. Several times as fast as `np.unique`, which hashes them."""
    found = np.sort(values)
    return found[np.append(True, found[1:] != found[:-1])] if len(found) else found


def mix(values: Array) -> Array:
    """A number that depends on all bits of each value; different values give different numbers."""
    values = values ^ (values >> _HALF)
    for factor in _FACTORS:
        values *= factor
        values ^= values >> _HALF
    return values


def hash_column(column: pa.Array) -> Array:
    """One number per row of one column."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return hash_text(column)
    if pa.types.is_decimal128(kind):
        halves = _content(column, 1, np.uint64, 2)
        hashes = halves[0::2] + mix(halves[1::2])
    else:
        hashes = _whole_numbers(column).view(np.uint64)
    if column.null_count:
        hashes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return hashes


def _whole_numbers(column: pa.Array) -> Array:
    """As int64; a null is any number."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.int64)
    if pa.types.is_date32(kind):
        return _content(column, 1, np.int32).astype(np.int64)
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return _content(column, 1, np.int64)
    raise TypeError(f"{kind} cannot be a key")


def text_sizes(column: pa.Array) -> Array:
    """The number of bytes of each value of a text or binary column; 0 for a null."""
    sizes = np.diff(_content(column, 1, np.int32, more=1))
    if column.null_count:  # a null may have bytes, too
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return sizes


def hash_text(column: pa.Array, words: Array | None = None) -> Array:
    """One number per row of a text or binary column. Into `words`, by row, the first bytes are written as numbers, zero behind the
    end; values beyond `_LONG` are left out.
    """
    hashes = _hash_bytes(column, words)
    if column.null_count:
        hashes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return hashes


def _hash_bytes(column: pa.Array, into: Array | None) -> Array:
    offsets = _content(column, 1, np.int32, more=1)
    sizes = text_sizes(column)
    hashes = sizes.astype(np.uint64)
    content = column.buffers()[2]
    if content is None or not len(sizes):
        return hashes
    first, last = int(offsets[0]), int(offsets[-1])
    if (size := int(sizes[0])) and size <= _LONG and last - first == size * len(sizes) and bool((sizes == size).all()):
        return _hash_alike(np.frombuffer(content, np.uint8, last - first, first).reshape(-1, size), hashes, into)
    padded = np.zeros((last - first) // 8 + 3, np.uint64)  # words that reach beyond the end are zero there
    padded.view(np.uint8)[: last - first] = np.frombuffer(content, np.uint8, last - first, first)
    starts = offsets[:-1] - first
    long = np.flatnonzero(sizes > _LONG)
    for row in long.tolist():
        digest = blake2b(content.slice(int(offsets[row]), int(sizes[row])), digest_size=8).digest()
        hashes[row] = np.frombuffer(digest, np.uint64)[0]
    sizes[long] = 0
    rows = None  # all
    for at in range(0, int(sizes.max(initial=0)), 8):
        if at >= int(sizes.min(initial=0)):
            left = np.flatnonzero(sizes > at)
            starts, sizes = starts[left], sizes[left]
            rows = left if rows is None else rows[left]
        words = _words(padded, starts + at, sizes - at)
        if into is not None and at // 8 < into.shape[1]:
            into[slice(None) if rows is None else rows, at // 8] = words
        if rows is None:
            hashes = mix(hashes ^ words)
        else:
            hashes[rows] = mix(hashes[rows] ^ words)
    return hashes


def _hash_alike(values: Array, hashes: Array, into: Array | None) -> Array:
    """Values of one size, as a matrix of bytes."""
    padded = np.zeros((len(values), -(-values.shape[1] // 8) * 8), np.uint8)
    padded[:, : values.shape[1]] = values
    words = padded.view(np.uint64)
    for word in range(words.shape[1]):
        hashes = mix(hashes ^ words[:, word])
    if into is not None:
        width = min(words.shape[1], into.shape[1])
        into[:, :width] = words[:, :width]
    return hashes


def _words(padded: Array, starts: Array, sizes: Array) -> Array:
    """The eight bytes from each start on; those beyond the size (at least 1) are zero."""
    word, shift = starts >> 3, ((starts & 7) << 3).astype(np.uint64)
    found = padded[word] >> shift
    found |= padded[word + 1] << np.uint64(1) << (np.uint64(63) - shift)
    if int(sizes.min(initial=8)) < 8:
        found &= _MASKS[np.minimum(sizes, 8)]
    return np.asarray(found)


_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(9)], np.uint64)


def _content(column: pa.Array, buffer: int, kind: type[Any], each: int = 1, more: int = 0) -> Array:
    """The numbers of a column's buffer: `each` per row, and `more` behind them."""
    count = len(column) * each + more
    data = column.buffers()[buffer]
    if data is None or not data.size:
        return np.zeros(count, kind)
    return np.frombuffer(data, kind, count, column.offset * each * np.dtype(kind).itemsize)
