"""`Block`: rows of a component's state that never change, at most one per key, with an index by hash and, when asked for, by order.

The large ones lie in files of the cache (`query.cache`), which the system maps in and out.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from datetime import date, datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components.batches import compacted
from streamwork.components.batches import take as take_rows
from streamwork.components.hashing import hash_columns
from streamwork.components.times import BEGINNING, microseconds
from streamwork.query.shape import DELETED, Shape
from streamwork.state.table_columns import equal

Array = np.ndarray[Any, Any]
SortKey = tuple[tuple[bool, Any], ...]
"""A key that can be compared: nulls are behind all values."""
CHUNK = 256
"""Keys that are decoded at a time while rows are read in order."""


class Index(NamedTuple):
    """Hashes in ascending order, and the row of each."""

    hashes: Array
    rows: Array

    @classmethod
    def of(cls, hashes: Array) -> Index:
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], order.astype(np.uint32))


class Block:
    def __init__(self, shape: Shape, table: pa.Table, index: Index | None = None) -> None:
        """Without an index, rows are brought together in few batches, and indexed."""
        self.shape = shape
        self.table = table if index is not None else compacted(table)
        self._index = index or Index.of(self.hashes())
        self._batches = self.table.to_batches()
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)]).tolist()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def hashes(self) -> Array:
        """By row."""
        return np.concatenate([hashes for hashes, _ in self.hashed_keys()] or [np.empty(0, np.uint64)])

    def hashed_keys(self) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """(hashes, keys) of all rows, batch by batch."""
        for batch in self.table.select(list(self.shape.key)).to_batches():
            yield hash_columns(batch.columns, batch.num_rows), batch

    # ---- by key ---------------------------------------------------------------------------------------------------

    def find_one(self, hashed: np.uint64, parts: tuple[Any, ...]) -> pa.RecordBatch | None:
        """The row of a key as a batch of one row; also one that says that the key is gone."""
        hashes = self._index.hashes
        at = int(hashes.searchsorted(hashed))
        while at < len(hashes) and hashes[at] == hashed:
            row = self._row(int(self._index.rows[at]))
            if tuple(self._values(row, 0)) == _comparable(parts):
                return row
            at += 1
        return None

    def find(self, hashes: Array, keys: pa.RecordBatch) -> tuple[Array, Array]:
        """(place in `keys`, row) of the keys that have a row, ordered by row; `hashes` are those of the keys."""
        asked = np.argsort(hashes)  # sorted lookups touch neighbouring memory, which is much faster
        return self._find(asked, hashes[asked], keys)

    def _find(self, asked: Array, sought: Array, keys: pa.RecordBatch) -> tuple[Array, Array]:
        """`sought` are the hashes of the keys at the places `asked`, in ascending order."""
        mine = self._index.hashes
        low = np.searchsorted(mine, sought, side="left")
        there = np.flatnonzero(low < len(mine))
        there = there[mine[low[there]] == sought[there]]
        asked, low, sought = asked[there], low[there], sought[there]
        last = low + 1
        if len(low) and bool((mine[np.minimum(last, len(mine) - 1)] == sought)[last < len(mine)].any()):
            last = np.searchsorted(mine, sought, side="right")  # keys of one hash: rare
        count = last - low
        places = np.repeat(asked, count)
        within = np.arange(len(places)) - np.repeat(np.cumsum(count) - count, count)
        rows = self._index.rows[np.repeat(low, count) + within].astype(np.int64)
        order = np.argsort(rows, kind="stable")
        places, rows = places[order], rows[order]
        stored, others = take_rows(self.table.select(list(self.shape.key)), rows), keys.take(pa.array(places))
        same = np.ones(len(rows), bool)
        for name in self.shape.key:
            same &= equal(stored.column(name), others.column(name))
        return places[same], rows[same]

    def under(self, higher: Block) -> Block:
        """This block with a higher one over it, whose rows replace those of their keys. The order of hashes is merged, not made."""
        keep = np.ones(len(self), bool)
        keys = higher.table.select(list(higher.shape.key)).to_batches()
        if len(keys) == 1:
            keep[self._find(higher._index.rows.astype(np.int64), higher._index.hashes, keys[0])[1]] = False
        else:
            for hashes, some in higher.hashed_keys():
                keep[self.find(hashes, some)[1]] = False
        whole = bool(keep.all())
        mine = self.table if whole else self.table.filter(pa.array(keep))
        rows, hashes = self._index.rows, self._index.hashes
        if not whole:
            left = keep[rows]
            rows, hashes = (np.cumsum(keep, dtype=np.uint32) - np.uint32(1))[rows[left]], hashes[left]
        hashes = np.concatenate([hashes, higher._index.hashes])
        rows = np.concatenate([rows, higher._index.rows + np.uint32(mine.num_rows)])
        order = np.argsort(hashes, kind="stable")  # of two runs that are in order: one pass
        table = compacted(pa.concat_tables([mine, higher.table]))
        return Block(self.shape, table, Index(hashes[order], rows[order]))

    def take(self, rows: Array) -> pa.Table:
        """Some rows, whose numbers are in ascending order."""
        return take_rows(self.table, rows)

    def is_gone(self, rows: Array) -> Array:
        return np.asarray(take_rows(self.table.select([DELETED]), rows).column(DELETED).to_numpy())

    # ---- in order -------------------------------------------------------------------------------------------------

    @cached_property
    def order(self) -> Array:
        """The rows in the order of their keys."""
        names = [(name, "ascending") for name in self.shape.key]
        return np.asarray(pc.sort_indices(self.table.select(list(self.shape.key)), sort_keys=names)).astype(np.uint32)

    def between(self, start: Bound | None, end: Bound | None) -> Iterator[tuple[SortKey, int]]:
        """(key, row) in order, from `start` to `end`."""
        low = 0 if start is None else self._place(start)
        high = len(self) if end is None else self._place(end)
        for first in range(low, high, CHUNK):
            rows = self.order[first : min(first + CHUNK, high)].astype(np.int64)
            ascending = np.argsort(rows)
            keys = take_rows(self.table.select(list(self.shape.key)), rows[ascending]).to_batches()
            sorting = [key for batch in keys for key in sort_keys(batch)]
            back = np.empty(len(rows), np.int64)
            back[ascending] = np.arange(len(rows))
            for row, place in zip(rows.tolist(), back.tolist(), strict=True):
                yield sorting[place], row

    def _place(self, bound: Bound) -> int:
        find = bisect.bisect_right if bound.after else bisect.bisect_left
        return find(range(len(self)), bound.key, key=lambda at: bound.cut(self._sort_key(int(self.order[at]))))

    def _sort_key(self, row: int) -> SortKey:
        return tuple((part is None, part) for part in self._values(self._row(row), 0))

    def _row(self, row: int) -> pa.RecordBatch:
        at = bisect.bisect_right(self._starts, row) - 1 if len(self._batches) > 1 else 0
        return self._batches[at].slice(row - self._starts[at], 1)

    def _values(self, row: pa.RecordBatch, at: int) -> Iterator[Any]:
        for place in range(len(self.shape.key)):
            found = row.column(place)[at]
            yield found.value if isinstance(found, _NUMBERED) else found.as_py()


class Bound(NamedTuple):
    """An end of a range: before all keys that begin with `key`, or behind them. Of text, `letters` is how many of the last part's
    letters count; None: all.
    """

    key: SortKey
    after: bool
    letters: int | None = None

    @classmethod
    def of(cls, parts: tuple[Any, ...], after: bool, is_prefix: bool = False) -> Bound:
        key = tuple((part is None, part) for part in _comparable(parts))
        last = parts[-1] if parts else None
        return cls(key, after, len(last) if is_prefix and isinstance(last, str | bytes) else None)

    def cut(self, key: SortKey) -> SortKey:
        """The part of a key that counts."""
        key = key[: len(self.key)]
        if self.letters is not None and key and key[-1][1] is not None:
            key = (*key[:-1], (False, key[-1][1][: self.letters]))
        return key


def sort_keys(keys: pa.RecordBatch) -> list[SortKey]:
    columns = [_numbers(column).to_pylist() for column in keys.columns]
    return [tuple((part is None, part) for part in key) for key in zip(*columns, strict=True)]


def _numbers(column: pa.Array) -> pa.Array:
    """Times and dates as numbers, which are much faster to decode."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date(column.type) else column


def _comparable(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_number(part) if isinstance(part, date) else part for part in parts)


def _number(part: date) -> int:
    return microseconds(part) if isinstance(part, datetime) else (part - BEGINNING.date()).days


_NUMBERED = (pa.TimestampScalar, pa.Date32Scalar)
