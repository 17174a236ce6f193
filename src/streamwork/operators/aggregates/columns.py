"""Columns of partial aggregates, and how their rows are grouped.

A column of a plain type (`is_plain`) is a numpy array, any other an Arrow array. Functions here treat both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components.batches import one_array
from streamwork.components.field_types import FieldType

Array = np.ndarray[Any, Any]
Column = Any
"""A numpy array or an Arrow array; Arrow has no types for type checkers."""
Parts = Mapping[str, Column]
"""The columns of partial aggregates: one row per group."""

_PLAIN = {pa.int64(): np.dtype(np.int64), pa.float64(): np.dtype(np.float64), pa.bool_(): np.dtype(np.bool_)}
_TIME = np.dtype("datetime64[us]")


class Groups:
    """Which group each row belongs to: `codes` are from 0 to `count` - 1, and every group has a row."""

    def __init__(self, codes: Array, count: int) -> None:
        self.codes = codes
        self.count = count

    @cached_property
    def sizes(self) -> Array:
        """The number of rows of each group."""
        return np.bincount(self.codes, minlength=self.count)

    @cached_property
    def order(self) -> Array:
        """The rows, group by group; those of one group in the order in which they come."""
        return np.argsort(self.codes, kind="stable")

    @cached_property
    def starts(self) -> Array:
        """Where each group begins in `order`."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def firsts(self) -> Array:
        """The first row of each group."""
        found = np.full(self.count, len(self.codes), np.int64)
        np.minimum.at(found, self.codes, np.arange(len(self.codes)))
        return found

    @cached_property
    def lasts(self) -> Array:
        """The last row of each group."""
        found = np.zeros(self.count, np.int64)
        found[self.codes] = np.arange(len(self.codes))  # of several that are assigned, the last one stays
        return found


def is_plain(field: FieldType) -> bool:
    """True if a column of this field is a numpy array."""
    return not field.nullable and (field.arrow in _PLAIN or pa.types.is_timestamp(field.arrow))


def column_of(field: FieldType, array: pa.Array) -> Column:
    """An Arrow array as a column of this field."""
    if not is_plain(field):
        return array
    if pa.types.is_timestamp(field.arrow):
        return np.asarray(array.cast(pa.int64()).to_numpy(zero_copy_only=False)).view(_TIME)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def arrow_of(field: FieldType, column: Column) -> pa.Array:
    """A column as an Arrow array of this field's type."""
    if isinstance(column, pa.Array):
        return column if column.type == field.arrow else column.cast(field.arrow)
    if column.dtype.kind == "M":
        return pa.array(column.astype(_TIME, copy=False).view(np.int64)).cast(field.arrow)
    return pa.array(column, field.arrow)


def taken(column: Column, rows: Array) -> Column:
    return column.take(pa.array(rows)) if isinstance(column, pa.Array) else column[rows]


def take(parts: Parts, rows: Array) -> Parts:
    """Some rows of all columns."""
    return {name: taken(column, rows) for name, column in parts.items()}


def stacked(several: Sequence[Parts]) -> Parts:
    """The rows of several parts, one after another."""
    if len(several) == 1:
        return several[0]
    return {name: _stacked_column([parts[name] for parts in several]) for name in several[0]}


def _stacked_column(columns: Sequence[Column]) -> Column:
    if isinstance(columns[0], pa.Array):
        return one_array(columns, columns[0].type)
    return np.concatenate(columns)


def paired(left: Parts, right: Parts) -> tuple[Parts, Groups]:
    """The rows of both, and the groups that each row of `left` and that of `right` in the same place are."""
    both = stacked([left, right])
    count = len(next(iter(left.values())))
    codes = np.arange(count)
    return both, Groups(np.concatenate((codes, codes)), count)


def chosen(mask: Array, yes: Column, no: Column) -> Column:
    """Row by row, that of `yes` where the mask is true, else that of `no`."""
    if isinstance(yes, pa.Array) or isinstance(no, pa.Array):
        rows = np.arange(len(mask)) + np.where(mask, 0, len(mask))
        return taken(_stacked_column([yes, no]), rows)
    return np.where(mask, yes, no)


def reduced(parts: Parts, groups: Groups, merge: Callable[[Parts, Parts], Parts]) -> Parts:
    """One row per group: neighbours are merged pairwise, until one row of each group is left.

    `merge` is associative; it need not be commutative. The number of its calls is the logarithm of the largest group.
    """
    parts = take(parts, groups.order)
    sizes, starts = groups.sizes, groups.starts
    while len(sizes) and sizes.max() > 1:
        owner = np.repeat(np.arange(len(sizes)), sizes)
        rank = np.arange(len(owner)) - starts[owner]
        left = np.flatnonzero(rank % 2 == 0)
        paired = rank[left] + 1 < sizes[owner[left]]
        merged = merge(take(parts, left[paired]), take(parts, left[paired] + 1))
        place = np.empty(len(left), np.int64)
        place[paired] = np.arange(paired.sum())
        place[~paired] = paired.sum() + np.arange(len(left) - paired.sum())
        parts = take(stacked([merged, take(parts, left[~paired])]), place)
        sizes = (sizes + 1) // 2
        starts = np.cumsum(sizes) - sizes
    return parts


def running(parts: Parts, groups: Groups, merge: Callable[[Parts, Parts], Parts]) -> Parts:
    """For each row, the merger of all rows of its group up to it. The rows of a group are next to each other and in order."""
    starts = np.repeat(groups.starts, groups.sizes)
    rank = np.arange(len(groups.codes)) - starts
    distance = 1
    while (later := np.flatnonzero(rank >= distance)).size:
        merged = merge(take(parts, later - distance), take(parts, later))
        place = np.arange(len(rank))
        place[later] = len(rank) + np.arange(len(later))
        parts = take(stacked([parts, merged]), place)
        distance *= 2
    return parts


def split(column: Column) -> tuple[Array, Array | None]:
    """(numbers, which of them are valid; None: all). Where one is not valid, its number is 0."""
    if not isinstance(column, pa.Array):
        return column, None
    valid = None if not column.null_count else column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    zero: Any = False if pa.types.is_boolean(column.type) else 0
    numbers = column.fill_null(zero) if column.null_count else column
    return np.asarray(numbers.to_numpy(zero_copy_only=False)), valid


def with_nulls(field: FieldType, numbers: Array, valid: Array | None) -> Column:
    """The opposite of `split`, as a column of this field."""
    if is_plain(field):
        return numbers.view(_TIME) if pa.types.is_timestamp(field.arrow) else numbers
    mask = None if valid is None else ~valid
    if pa.types.is_timestamp(field.arrow):
        return pa.array(numbers.view(np.int64), pa.int64(), mask=mask).cast(field.arrow)
    return pa.array(numbers, field.arrow, mask=mask)
