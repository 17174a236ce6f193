"""`TextColumn`: the text or bytes of keys, with their first bytes as numbers: most comparisons need no Arrow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components.field_types import FieldType
from streamwork.components.hashing import hash_text, text_sizes
from streamwork.state.table_columns import ArrowColumn, longer

Array = np.ndarray[Any, Any]
WIDEST = 4
"""Words per value. The last byte of the last word is a mark: 0 for a null, else the size + 1, or `LONG`."""
LONG = 255
_MARK = np.uint64(56)
_UNMARKED = np.uint64((1 << 56) - 1)


class Text(NamedTuple):
    """Values of a batch."""

    values: pa.Array
    words: Array
    """(row, word)"""
    hashes: Array


class TextColumn(ArrowColumn):
    """Values with equal words are equal, but for those that are too long for their words: these are compared in Arrow."""

    def __init__(self, field: FieldType) -> None:
        super().__init__(field, None)
        self._words = np.empty((0, 1), np.uint64)  # (place, word)
        self._has_long = False

    def given(self, values: Any) -> Any:
        values = super().given(values)
        sizes = text_sizes(values)
        largest = int(sizes.max(initial=0))
        width = min(largest // 8 + 1, WIDEST)
        if width > self._words.shape[1]:
            self._widen(width)
        words = np.zeros((len(values), self._words.shape[1]), np.uint64)
        hashes = hash_text(values, words)
        marks = sizes + 1
        if largest >= 8 * WIDEST:
            long = np.flatnonzero(sizes >= 8 * WIDEST)
            words[long, -1] = hashes[long] & _UNMARKED
            marks[long] = LONG
            self._has_long = True
        if values.null_count:
            marks[values.is_null().to_numpy(zero_copy_only=False)] = 0
        words[:, -1] |= marks.astype(np.uint64) << _MARK
        return Text(values, words, hashes)

    def hashes(self, given: Any) -> Array:
        return np.asarray(given.hashes)

    def rows(self, given: Any, rows: Array) -> Any:
        return Text(given.values.take(pa.array(rows)), given.words.take(rows, axis=0), given.hashes[rows])

    def same(self, places: Array, given: Any, rows: Array | None) -> Array:
        mine = self._words.take(places, axis=0)  # much faster than an index
        same = _same_words(mine, given.words if rows is None else given.words.take(rows, axis=0))
        if self._has_long:
            long = np.flatnonzero(same & (mine[:, -1] >> _MARK == LONG))
            if len(long):
                same[long] = super().same(places[long], given.values, long if rows is None else rows[long])
        return same

    def twins(self, given: Any, rows: Array, others: Array) -> Array:
        mine = given.words.take(rows, axis=0)
        same = _same_words(mine, given.words.take(others, axis=0))
        if self._has_long:
            long = np.flatnonzero(same & (mine[:, -1] >> _MARK == LONG))
            if len(long):
                same[long] = super().twins(given.values, rows[long], others[long])
        return same

    def put(self, places: Array, given: Any) -> None:
        super().put(places, given.values)
        self._words[places] = given.words

    def make_room(self, size: int) -> None:
        super().make_room(size)
        self._words = longer(self._words, size)

    def bytes_each(self, alive: int) -> int:
        return super().bytes_each(alive) + 8 * int(self._words.shape[1])

    def _widen(self, width: int) -> None:
        old = self._words.shape[1]
        words = np.zeros((len(self._words), width), np.uint64)
        words[:, :old] = self._words
        words[:, old - 1] &= _UNMARKED
        words[:, -1] |= self._words[:, -1] & ~_UNMARKED
        self._words = words


def _same_words(some: Array, others: Array) -> Array:
    same = some[:, 0] == others[:, 0]
    for word in range(1, some.shape[1]):
        same &= some[:, word] == others[:, word]
    return np.asarray(same)
