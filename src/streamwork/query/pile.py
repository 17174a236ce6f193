"""`Pile`: the rows of a component at one checkpoint, as blocks. It never changes: a newer checkpoint is a new pile of mostly the
same blocks.

The lowest block is made of snapshots, those above it of deltas; the highest block that has a row of a key decides. Neighbours of
similar sizes become one, so there are few, however many checkpoints there were.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components.batches import compacted
from streamwork.components.hashing import hash_columns
from streamwork.query.block import Array, Block, Bound, SortKey
from streamwork.query.one_hash import hash_one
from streamwork.query.shape import DELETED, Shape

SIMILAR = 1.5
"""A block becomes one with the block above it if it has at most so many times its rows. Deltas of one size then double: a row is
merged as often as a logarithm of their number.
"""


class Places(NamedTuple):
    """Where rows are: the number of the block and the row in it; -1 where there is none."""

    blocks: Array
    rows: Array


@dataclass(frozen=True)
class Pile:
    shape: Shape
    blocks: tuple[Block, ...]  # the lowest first

    def push(self, rows: pa.Table) -> Pile:
        """With the rows of a later delta; no key is in it twice."""
        if not rows.num_rows:
            return self
        blocks = [*self.blocks, Block(self.shape, rows)]
        while len(blocks) > 2 and len(blocks[-2]) <= SIMILAR * len(blocks[-1]):
            blocks[-2:] = [blocks[-2].under(blocks[-1])]
        return Pile(self.shape, tuple(blocks))

    @property
    def overlay(self) -> int:
        """The rows above the lowest block."""
        return sum(len(block) for block in self.blocks[1:])

    # ---- by key ---------------------------------------------------------------------------------------------------

    def get(self, parts: tuple[Any, ...]) -> pa.RecordBatch | None:
        """The row of a key."""
        hashed = np.uint64(hash_one(parts, self.shape.scales))
        for block in reversed(self.blocks):
            if (row := block.find_one(hashed, parts)) is not None:
                return None if row.column(row.num_columns - 1)[0].as_py() else row
        return None

    def find(self, keys: pa.RecordBatch) -> Places:
        """Where the row of each key is."""
        hashes = hash_columns(keys.columns, keys.num_rows)
        found = Places(np.full(keys.num_rows, -1, np.int64), np.full(keys.num_rows, -1, np.int64))
        left = np.arange(keys.num_rows)
        for number in reversed(range(len(self.blocks))):
            if not len(left):
                break
            block = self.blocks[number]
            whole = len(left) == keys.num_rows
            asked, rows = block.find(hashes if whole else hashes[left], keys if whole else keys.take(pa.array(left)))
            if not len(asked):
                continue
            alive = ~block.is_gone(rows) if number else slice(None)
            found.blocks[left[asked[alive]]] = number
            found.rows[left[asked[alive]]] = rows[alive]
            left = np.delete(left, asked)
        return found

    def gather(self, places: Places) -> pa.Table:
        """The rows at these places, in their order; places without a row are left out."""
        order = np.lexsort((places.rows, places.blocks))
        order = order[places.blocks[order] >= 0]
        taken = [
            block.take(places.rows[mine])
            for number, block in enumerate(self.blocks)
            if len(mine := order[places.blocks[order] == number])
        ]
        if not taken:
            return self.shape.schema.empty_table()
        table = compacted(pa.concat_tables(taken)).select(self.shape.schema.names)
        back = np.argsort(order, kind="stable")
        return table if np.array_equal(back, np.arange(len(back))) else table.take(pa.array(back))

    # ---- many -----------------------------------------------------------------------------------------------------

    @cached_property
    def alive(self) -> tuple[Array, ...]:
        """Of each block, which rows count: those that no higher block replaces, and that are not gone."""
        counting = []
        above: list[Block] = []
        for number in reversed(range(len(self.blocks))):
            block = self.blocks[number]
            mask = ~block.is_gone(np.arange(len(block))) if number else np.ones(len(block), bool)
            for higher in above:
                for hashes, keys in higher.hashed_keys():
                    mask[block.find(hashes, keys)[1]] = False
            counting.append(mask)
            above.append(block)
        return tuple(reversed(counting))

    def count(self) -> int:
        return int(sum(np.count_nonzero(mask) for mask in self.alive))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in no order."""
        for block, mask in zip(self.blocks, self.alive, strict=True):
            start, whole = 0, bool(mask.all())
            for batch in block.table.select(self.shape.schema.names).to_batches():
                mine = mask[start : start + batch.num_rows]
                start += batch.num_rows
                if whole or mine.any():
                    yield batch if whole else batch.filter(pa.array(mine))

    def table(self) -> pa.Table:
        """All rows, in no order."""
        return pa.Table.from_batches(self.batches(), self.shape.schema)

    def between(self, start: Bound | None, end: Bound | None, limit: int) -> tuple[pa.Table, bool]:
        """(the first rows in the order of keys, whether there are more)"""
        ways = [self._way(number, start, end) for number in range(len(self.blocks))]
        blocks: list[int] = []
        rows: list[int] = []
        last: SortKey | None = None
        for key, above, row in heapq.merge(*ways):
            if key == last:
                continue
            last = key
            number = len(self.blocks) - above
            if number and self.blocks[number].is_gone(np.array([row]))[0]:
                continue
            if len(rows) == limit:
                return self.gather(Places(np.array(blocks, np.int64), np.array(rows, np.int64))), True
            blocks.append(number)
            rows.append(row)
        return self.gather(Places(np.array(blocks, np.int64), np.array(rows, np.int64))), False

    def _way(self, number: int, start: Bound | None, end: Bound | None) -> Iterator[tuple[SortKey, int, int]]:
        """The rows of a block; of one key, the row of a higher block comes first."""
        above = len(self.blocks) - number
        return ((key, above, row) for key, row in self.blocks[number].between(start, end))


def marked(shape: Shape, rows: pa.Table) -> pa.Table:
    """Rows of which none is gone, as rows of a block."""
    return rows.append_column(shape.rows_schema.field(DELETED), pa.repeat(pa.scalar(False), rows.num_rows))
