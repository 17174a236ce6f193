"""The cache of a database lookup: rows by key, as columns; bounded by the number of keys and by their age."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from streamwork.components.batches import one_array
from streamwork.operators.joins import matching
from streamwork.operators.joins.key_index import KeyIndex
from streamwork.operators.joins.matching import Array

Fetch = Callable[[pa.RecordBatch], pa.RecordBatch]


class LookupCache:
    """Keeps at most `size` keys, for at most `age` seconds each. The least recently used keys go first.

    That a key has no rows is kept, too.
    """

    def __init__(self, key: Sequence[str], size: int, age: float) -> None:
        self._key = list(key)
        self._size = size
        self._age = age
        self._keys: pa.RecordBatch | None = None  # one row per key
        self._loaded = np.zeros(0)  # by key: when it was fetched
        self._used = np.zeros(0)  # by key: when it was used last
        self._rows: pa.RecordBatch | None = None  # of all keys
        self._owners = np.zeros(0, np.int64)  # by row: the number of its key
        self._index: KeyIndex | None = None

    def __len__(self) -> int:
        return 0 if self._keys is None else int(self._keys.num_rows)

    def find(self, keys: pa.RecordBatch, now: float, fetch: Fetch) -> tuple[Array, pa.RecordBatch]:
        """The rows of distinct keys: (row of `keys` of each, the rows). Keys that are not here are fetched in one call."""
        numbers = np.full(keys.num_rows, -1, np.int64)
        if self._index is not None:
            asked, found = self._index.matches(keys.columns)
            fresh = now - self._loaded[found] < self._age
            numbers[asked[fresh]] = found[fresh]
            self._used[found[fresh]] = now
        missing = np.flatnonzero(numbers < 0)
        if not len(missing):
            assert self._rows is not None
            asked, places = self._of_keys(numbers)
            return asked, self._rows.take(pa.array(places))
        wanted = keys.take(pa.array(missing))
        new = fetch(wanted)
        theirs, mine = matching.codes_of(wanted.columns, [new.column(name) for name in self._key])
        places, rows = matching.equal(theirs, mine)
        asked, new = missing[places], new.take(pa.array(rows))
        if self._rows is None:
            answer = asked, new
        else:
            kept, old = self._of_keys(numbers)
            answer = np.concatenate((kept, asked)), _joined(self._rows.take(pa.array(old)), new)
        self._add(wanted, places, new, now)
        return answer

    def _of_keys(self, numbers: Array) -> tuple[Array, Array]:
        """(place in `numbers`, row) of all rows of these keys; -1 stands for none."""
        return matching.equal(numbers, self._owners)

    def _add(self, keys: pa.RecordBatch, owners: Array, rows: pa.RecordBatch, now: float) -> None:
        """Keep new rows, and drop keys beyond the bounds. `owners`: the key of each row."""
        loaded = np.full(keys.num_rows, now)
        used = loaded.copy()
        if self._keys is not None and self._rows is not None:
            assert self._index is not None
            stale = np.zeros(len(self), bool)
            stale[self._index.matches(keys.columns)[1]] = True  # fetched again
            keep = np.flatnonzero(~stale & (now - self._loaded < self._age))
            room = max(self._size - keys.num_rows, 0)
            if len(keep) > room:
                keep = np.sort(keep[np.argsort(self._used[keep], kind="stable")][len(keep) - room :])
            places, old = matching.equal(keep, self._owners)
            owners = np.concatenate((places, owners + len(keep)))
            rows = _joined(self._rows.take(pa.array(old)), rows)
            keys = _joined(self._keys.take(pa.array(keep)), keys)
            loaded = np.concatenate((self._loaded[keep], loaded))
            used = np.concatenate((self._used[keep], used))
        if keys.num_rows > self._size:  # more in one call than there is room
            keys, loaded, used = keys.slice(0, self._size), loaded[: self._size], used[: self._size]
            mine = np.flatnonzero(owners < self._size)
            owners, rows = owners[mine], rows.take(pa.array(mine))
        self._keys, self._loaded, self._used = keys, loaded, used
        self._owners, self._rows = owners, rows
        self._index = KeyIndex(keys.columns)


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    columns = [one_array([a, b], a.type) for a, b in zip(first.columns, second.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=first.schema)
