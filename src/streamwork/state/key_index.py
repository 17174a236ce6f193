"""Hash -> place, for whole batches at a time: open addressing in numpy.

A slot holds 31 bits of the hash and a place, so most slots of other keys are passed without a comparison. Equal bits do not
prove equal keys: the caller compares the keys. Keys with equal hashes have slots of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Same = Callable[[Array | None, Array], Array]
"""(numbers of rows, or None for all; places) -> for each pair, True if the row has the key of the place."""
Twins = Callable[[Array, Array], Array]
"""(numbers of rows, numbers of rows) -> for each pair, True if both have the same key."""

_TAG = np.uint64(0x7FFFFFFF_00000000)
_PLACE = np.uint64(0xFFFFFFFF)
_CLAIM = np.uint64(1 << 63)  # with the number of a row, while rows are added
_REMOVED = np.uint64((1 << 64) - 2)
_EMPTY = np.uint64((1 << 64) - 1)
_FIRST_SIZE = 64


class KeyIndex:
    """At most a third of the slots is used."""

    def __init__(self) -> None:
        self._slots = np.full(_FIRST_SIZE, _EMPTY, np.uint64)
        self._taken = 0  # slots that are not empty; removed ones count
        self._hashes = np.empty(0, np.uint64)  # by place
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, hashes: Array, same: Same) -> Array:
        """The place of each row; -1 where there is none."""
        if not self._count:
            return np.full(len(hashes), -1, np.int64)
        at, tags = self._home(hashes), hashes & _TAG
        here = self._slots.take(at)  # faster than an index
        hit = (here & ~_PLACE) == tags
        places = (here & _PLACE).view(np.int64)
        if not hit.all():
            places[~hit] = 0  # any: the comparison does not count
        hit &= same(None, places)  # most keys are in their first slot, so all rows are compared
        found = np.where(hit, places, -1)
        rows = np.flatnonzero(~hit & (here != _EMPTY))
        tags, at = tags[rows], self._next(at[rows])
        while len(rows):
            here = self._slots.take(at)
            hits = np.flatnonzero((here & ~_PLACE) == tags)
            on = here != _EMPTY
            if len(hits):
                asked, places = rows[hits], (here[hits] & _PLACE).view(np.int64)
                equal = same(asked, places)
                found[asked[equal]] = places[equal]
                on[hits[equal]] = False
            left = np.flatnonzero(on)
            rows, tags, at = rows[left], tags[left], self._next(at[left])
        return found

    def add(self, hashes: Array, twins: Twins, new_places: Callable[[int], Array]) -> tuple[Array, Array]:
        """Add keys that `find` did not find; some rows may have the same one. Returns (place of each row, the first row of each
        new key, in ascending order). `new_places(n)` are the places of these.
        """
        count = len(hashes)
        self._make_room(count)
        numbers = np.arange(count)
        first, slot = numbers.copy(), np.empty(count, np.int64)
        rows, at = numbers, self._home(hashes)
        while len(rows):  # rows with one key go through the same slots at the same time, so they meet
            here = self._slots[at]
            free = np.flatnonzero(here >= _REMOVED)
            on = np.ones(len(rows), bool)
            step = np.ones(len(rows), np.int64)
            claimed = np.flatnonzero((here >= _CLAIM) & (here < _REMOVED))
            if len(claimed):
                owners = (here[claimed] & _PLACE).astype(np.int64)
                equal = twins(rows[claimed], owners)
                first[rows[claimed[equal]]] = owners[equal]
                on[claimed[equal]] = False
            if len(free):
                wanted, marks = at[free], _CLAIM | rows[free].astype(np.uint64)
                self._slots[wanted[::-1]] = marks[::-1]  # of several rows that want one slot, the first one gets it
                won = self._slots[wanted] == marks
                slot[rows[free[won]]] = wanted[won]
                on[free[won]] = False
                self._taken += int(np.count_nonzero(here[free[won]] == _EMPTY))
                step[free] = 0  # compare with the one that has it
            left = np.flatnonzero(on)
            rows, at = rows[left], (at[left] + step[left]) & (len(self._slots) - 1)
        new = np.flatnonzero(first == numbers)
        places = new_places(len(new))
        self._slots[slot[new]] = (hashes[new] & _TAG) | places.astype(np.uint64)
        self._remember(places, hashes[new])
        self._count += len(new)
        place_of = np.empty(count, np.int64)
        place_of[new] = places
        return place_of[first], new

    def remove(self, places: Array) -> None:
        """Remove keys by their places, each of which is there once."""
        hashes = self._hashes[places]
        wanted, at = (hashes & _TAG) | places.astype(np.uint64), self._home(hashes)
        while len(at):
            there = self._slots[at] == wanted
            self._slots[at[there]] = _REMOVED
            wanted, at = wanted[~there], self._next(at[~there])
        self._count -= len(places)

    def _home(self, hashes: Array) -> Array:
        return np.asarray((hashes & np.uint64(len(self._slots) - 1)).view(np.int64))

    def _next(self, at: Array) -> Array:
        return (at + 1) & (len(self._slots) - 1)

    def _remember(self, places: Array, hashes: Array) -> None:
        most = int(places.max(initial=-1)) + 1
        if most > len(self._hashes):
            longer = np.empty(max(most, 2 * len(self._hashes), _FIRST_SIZE), np.uint64)
            longer[: len(self._hashes)] = self._hashes
            self._hashes = longer
        self._hashes[places] = hashes

    def _make_room(self, more: int) -> None:
        """Keep two thirds of the slots empty. Removed ones become empty again."""
        if (self._taken + more) * 3 <= len(self._slots):
            return
        kept = self._slots[self._slots < _CLAIM]
        size = _FIRST_SIZE
        while size < (self._count + more) * 4:
            size *= 2
        self._slots = np.full(size, _EMPTY, np.uint64)
        self._taken = len(kept)
        at = self._home(self._hashes[(kept & _PLACE).astype(np.int64)])
        while len(kept):
            free = np.flatnonzero(self._slots[at] == _EMPTY)
            self._slots[at[free]] = kept[free]
            left = np.flatnonzero(self._slots[at] != kept)
            kept, at = kept[left], self._next(at[left])
