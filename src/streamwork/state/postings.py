"""Which rows belong to a key: number of a key -> places of its rows, in the order of their addition.

The places of a key lie side by side in one long array, with room for as many more. A key that needs more room moves to the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamwork.state.table_columns import longer

Array = np.ndarray[Any, Any]
_HOLE = -1
_SMALL = 1_024


class Postings:
    """Numbers of keys and places are small whole numbers, as tables give them."""

    def __init__(self) -> None:
        self._entries = np.empty(0, np.int64)
        self._end = 0
        self._start = np.empty(0, np.int64)  # by number of a key
        self._size = np.empty(0, np.int64)  # entries, holes included
        self._room = np.empty(0, np.int64)
        self._alive = np.empty(0, np.int64)
        self._key = np.empty(0, np.int64)  # by place
        self._position = np.empty(0, np.int64)  # by place: its entry

    def of(self, keys: Array) -> tuple[Array, Array]:
        """(index in `keys`, place) of the rows of each key."""
        index, at = _spread(self._start[keys], self._size[keys])
        places = self._entries[at]
        there = places != _HOLE
        return (index, places) if there.all() else (index[there], places[there])

    def add(self, keys: Array, places: Array) -> None:
        """Rows of these keys were added, in this order."""
        self._know(int(keys.max(initial=-1)) + 1, int(places.max(initial=-1)) + 1)
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], places[order]
        own, counts = _runs(keys)
        full = self._size[own] + counts > self._room[own]
        if full.any():
            self._move(own[full], counts[full])
        at = np.repeat(self._start[own] + self._size[own], counts) + _within(counts)
        self._entries[at] = places
        self._position[places], self._key[places] = at, keys
        self._size[own] += counts
        self._alive[own] += counts

    def remove(self, places: Array) -> Array:
        """Remove rows. Returns the keys that have none left: their numbers may be used again."""
        self._entries[self._position[places]] = _HOLE
        own, counts = _runs(np.sort(self._key[places]))
        self._alive[own] -= counts
        empty = own[self._alive[own] == 0]
        self._size[empty] = self._room[empty] = 0
        sparse = own[(self._size[own] > 2 * self._alive[own]) & (self._alive[own] > 0)]
        if len(sparse):
            self._move(sparse, np.zeros(len(sparse), np.int64))
        return np.asarray(empty)

    def _move(self, keys: Array, more: Array) -> None:
        """Move the entries of keys to the end, without holes, with room for `more` and as many again."""
        index, places = self.of(keys)
        sizes = np.bincount(index, minlength=len(keys))
        room = 2 * (sizes + more)
        if self._end + room.sum() > len(self._entries):
            self._compact(int(room.sum()))
        starts = self._end + np.cumsum(room) - room
        at = np.repeat(starts, sizes) + _within(sizes)
        self._entries[at] = places
        self._position[places] = at
        self._start[keys], self._size[keys], self._room[keys] = starts, sizes, room
        self._end += int(room.sum())

    def _compact(self, more: int) -> None:
        """Copy the entries without the room that moved keys have left, and make room for `more`."""
        keys = np.flatnonzero(self._room > 0)
        sizes, room = self._size[keys], self._room[keys]
        _, at = _spread(self._start[keys], sizes)
        starts = np.cumsum(room) - room
        end = int(room.sum())
        entries = np.empty(2 * (end + more) + _SMALL, np.int64)
        to = np.repeat(starts, sizes) + _within(sizes)
        places = entries[to] = self._entries[at]
        there = places != _HOLE
        self._position[places[there]] = to[there]
        self._start[keys] = starts
        self._entries, self._end = entries, end

    def _know(self, keys: int, places: int) -> None:
        if keys > len(self._start):
            old, size = len(self._start), max(keys, 2 * len(self._start), _SMALL)
            for name in ("_start", "_size", "_room", "_alive"):
                values = longer(getattr(self, name), size)
                values[old:] = 0
                setattr(self, name, values)
        if places > len(self._key):
            size = max(places, 2 * len(self._key), _SMALL)
            self._key, self._position = longer(self._key, size), longer(self._position, size)


def _spread(starts: Array, sizes: Array) -> tuple[Array, Array]:
    """(number of the range, position) for every position of ranges."""
    index = np.repeat(np.arange(len(starts)), sizes)
    return index, np.repeat(starts, sizes) + _within(sizes)


def _within(sizes: Array) -> Array:
    """0, 1, ... up to each size, one range after another."""
    ends = np.cumsum(sizes)
    return np.asarray(np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes, sizes))


def _runs(ordered: Array) -> tuple[Array, Array]:
    """(each value, how often it occurs) of an ordered array."""
    if not len(ordered):
        return ordered, ordered
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    return ordered[starts], np.diff(starts, append=len(ordered))
