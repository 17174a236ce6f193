"""`Table`: the state of a `TableOperator` in memory: a row per key and sub-key, in columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components.columns import rows_without_null
from streamwork.components.defaults import defaults_of
from streamwork.components.field_types import FieldType
from streamwork.components.hashing import distinct_numbers
from streamwork.components.keys import canonical_order
from streamwork.components.schema import fields_of
from streamwork.components.values import Record
from streamwork.state.key_places import KeyPlaces, Rehash
from streamwork.state.postings import Postings
from streamwork.state.table_columns import Column, NumpyColumn, column_of, longer

Array = np.ndarray[Any, Any]
NAT = -(1 << 63)
NEVER_DUE = (1 << 63) - 1
UNKNOWN = -1


class Table:
    """Implements `components.table_operator.StateTable`. Rows that changed, and keys that were removed, since the last checkpoint
    are known: `changed` and `removed`.
    """

    def __init__(
        self,
        key: Mapping[str, FieldType],
        sub_key: type[Record] | None,
        record: type[Record],
        rehash: Rehash | None = None,
        all_numpy: bool = False,
    ) -> None:
        """`key`: the fields of the key by name. `rehash` replaces hashes in tests. `all_numpy`: the record has no Arrow column."""
        self.record = record
        self._key = dict(key)
        self._sub_key = fields_of(sub_key) if sub_key is not None else {}
        self._rehash = rehash
        self._rows = KeyPlaces({**self._key, **self._sub_key}, rehash)
        defaults = defaults_of(record)
        self._columns: dict[str, Column] = {
            name: column_of(field, defaults[name], all_numpy) for name, field in fields_of(record).items()
        }
        self._changed = np.empty(0, bool)
        self._is_stored = np.empty(0, bool)  # by place: the last checkpoint has this row
        self._groups = np.empty(0, np.int32)  # by place: the key group
        self._added = np.empty(0, np.int64)  # by place: in which order rows were added
        self._additions = 0
        self._removed: list[pa.RecordBatch] = []
        self._watches: dict[str, Watch] = {}  # by time column

    def __len__(self) -> int:
        return len(self._rows)

    # ---- rows -----------------------------------------------------------------------------------------------------

    def find(self, keys: pa.RecordBatch) -> Array:
        return self._rows.find(keys)

    def place(self, keys: pa.RecordBatch) -> Array:
        return self._place(keys)[0]

    def _place(self, keys: pa.RecordBatch) -> tuple[Array, Array]:
        """(the place of each row, the places that are new)"""
        places, new = self._rows.place(keys)
        if len(new):
            self._make_room()
            for column in self._columns.values():
                column.reset(new)
            self._changed[new] = True
            self._is_stored[new] = False
            self._groups[new] = UNKNOWN
            self._added[new] = np.arange(self._additions, self._additions + len(new))
            self._additions += len(new)
            if "_by_key" in self.__dict__:
                self._by_key.add(self.keys(new), new)
            for watch in self._watches.values():
                watch.added(new)
        return places, new

    def matches(self, keys: pa.RecordBatch, nulls: bool = False) -> tuple[Array, Array]:
        asked = np.arange(keys.num_rows) if nulls else rows_without_null(keys.select(list(self._key)))
        if len(asked) < keys.num_rows:
            keys = keys.take(pa.array(asked))
        if self._sub_key:
            rows, places = self._by_key.matches(keys)
        else:
            places = self.find(keys)
            rows = np.flatnonzero(places >= 0)
            places = places[rows]
        return asked[rows], places

    def places(self) -> Array:
        return self._rows.places()

    def forget(self, places: Array) -> None:
        """Remove rows; a place may come several times."""
        places = self._distinct(places)
        if not len(places):
            return
        stored = places[self._is_stored[places]]
        if len(stored):
            self._removed.append(self._rows.keys(stored))
        if "_by_key" in self.__dict__:
            self._by_key.remove(places)
        self._rows.remove(places)
        self._changed[places] = False
        for watch in self._watches.values():
            watch.removed()

    def _distinct(self, places: Array) -> Array:
        """In ascending order."""
        if len(places) * 8 < self._rows.room:
            return distinct_numbers(places)
        named = np.zeros(self._rows.room, bool)
        named[places] = True
        return np.flatnonzero(named)

    # ---- values ---------------------------------------------------------------------------------------------------

    def numbers(self, name: str, places: Array) -> Array:
        column = self._column(name)
        if not isinstance(column, NumpyColumn):
            raise TypeError(f"{name!r} is no plain column ({column.field.name}): use values")
        return column.numbers(places)

    def values(self, name: str, places: Array) -> pa.Array:
        return self._column(name).take(places)

    def keys(self, places: Array) -> pa.RecordBatch:
        return self._rows.keys(places)

    def put(self, name: str, places: Array, values: Array | pa.Array) -> None:
        column = self._columns[name]
        given: Any = column.given(values)
        if len(given) != len(places):
            raise ValueError(f"{name!r}: {len(given)} values for {len(places)} places")
        column.put(places, given)
        column.tidy(len(self._rows), self.places)
        self._changed[places] = True
        if name in self._watches:
            self._watches[name].put(given.view(np.int64))

    # ---- times ----------------------------------------------------------------------------------------------------

    def due(self, name: str, until: int) -> Array:
        watch = self._watched(name)
        if watch.bound() > until:
            return np.empty(0, np.int64)
        times = self._times(name)
        due = np.flatnonzero((times <= until) & self._rows.alive[: len(times)])
        due = np.asarray(due[times[due] != NAT])
        if not len(due):
            watch.earliest()
            return np.empty(0, np.int64)
        keys = self.keys(due)
        by_bytes, by_value = [keys.column(one) for one in self._key], [keys.column(one) for one in self._sub_key]
        return np.asarray(due[canonical_order(times[due], by_bytes, by_value)])

    def earliest(self, name: str) -> int | None:
        found = self._watched(name).earliest()
        return None if found == NEVER_DUE else found

    def _watched(self, name: str) -> Watch:
        if name not in self._watches:
            self._watches[name] = Watch(lambda: self._times(name), lambda: self._rows.alive)
        return self._watches[name]

    def _times(self, name: str) -> Array:
        column = self._column(name)
        if not isinstance(column, NumpyColumn) or column.all_numbers.dtype.kind not in "Mi":
            raise TypeError(f"{name!r} is no column of times, but {column.field.name}")
        return np.asarray(column.all_numbers.view(np.int64))

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    @property
    def is_changed(self) -> bool:
        return bool(self._removed) or bool(self._changed_rows().any())

    def changed(self) -> Array:
        """The places of rows that changed since the last checkpoint, in the order of their addition."""
        return self._in_order(np.flatnonzero(self._changed_rows()))

    def _changed_rows(self) -> Array:
        """By place: True for a row that changed."""
        return np.asarray(self._changed[: self._rows.room] & self._rows.alive)

    def removed(self) -> list[pa.RecordBatch]:
        """The keys that the last checkpoint has, and the table has not."""
        return [keys.filter(pa.array(self.find(keys) < 0)) for keys in self._removed]

    def groups(self, places: Array, groups_of: Callable[[Sequence[pa.Array]], Array]) -> Array:
        """The key group of each row. `groups_of` computes those of key columns, once per row of the table."""
        unknown = places[self._groups.take(places) == UNKNOWN]
        if len(unknown):
            self._groups[unknown] = groups_of([self.values(name, unknown) for name in self._key])
        return self._groups.take(places)

    def set_aside(self) -> Marks:
        """Count no row as changed, until `put_back`. What is removed from now on is among `removed`, even if it was added since the
        last checkpoint.
        """
        marks = Marks(self._changed_rows(), self._removed)
        self._changed[:] = False
        self._is_stored[: len(marks.changed)] |= marks.changed
        self._removed = []
        return marks

    def put_back(self, marks: Marks) -> None:
        """Count these rows as changed, and these keys as removed, again."""
        self._changed[: len(marks.changed)] |= marks.changed
        self._removed = [*marks.removed, *self._removed]

    def end_checkpoint(self) -> None:
        """All rows are stored now."""
        self._changed[:] = False
        self._is_stored[:] = True
        self._removed = []

    def bytes_each(self) -> int:
        """About how much memory a row takes."""
        columns = (*self._rows.columns.values(), *self._columns.values())
        return 40 + sum(column.bytes_each(len(self._rows)) for column in columns)

    def _column(self, name: str) -> Column:
        found = self._columns.get(name) or self._rows.columns.get(name)
        if found is None:
            raise KeyError(f"the state has no column {name!r}, but {', '.join((*self._rows.columns, *self._columns))}")
        return found

    def _make_room(self) -> None:
        size = self._rows.room
        if len(self._changed) < size:
            for column in self._columns.values():
                column.make_room(size)
            self._changed, self._is_stored = longer(self._changed, size), longer(self._is_stored, size)
            self._groups, self._added = longer(self._groups, size), longer(self._added, size)

    @cached_property
    def _by_key(self) -> RowsByKey:
        """Made when `matches` is first called: most operators never call it."""
        found, places = RowsByKey(KeyPlaces(self._key, self._rehash)), self._in_order(self.places())
        found.add(self.keys(places), places)
        return found

    def _in_order(self, places: Array) -> Array:
        """In the order of their addition."""
        added = self._added.take(places)
        return places if bool((added[1:] >= added[:-1]).all()) else np.asarray(places[np.argsort(added, kind="stable")])


class Marks(NamedTuple):
    """Rows that changed, by place, and keys that were removed."""

    changed: Array
    removed: list[pa.RecordBatch]


class RowsByKey:
    """The rows of each key, of all its sub-keys."""

    def __init__(self, owners: KeyPlaces) -> None:
        self._owners = owners
        self._postings = Postings()

    def matches(self, keys: pa.RecordBatch) -> tuple[Array, Array]:
        owners = self._owners.find(keys)
        known = np.flatnonzero(owners >= 0)
        index, places = self._postings.of(owners[known])
        return known[index], places

    def add(self, keys: pa.RecordBatch, places: Array) -> None:
        owners, _ = self._owners.place(keys)
        self._postings.add(owners, places)

    def remove(self, places: Array) -> None:
        empty = self._postings.remove(places)
        if len(empty):
            self._owners.remove(empty)


class Watch:
    """The earliest time of a column, or a lower bound of it that costs no scan."""

    def __init__(self, times: Callable[[], Array], alive: Callable[[], Array]) -> None:
        self._times = times
        self._alive = alive
        self._bound = NAT  # no row has an earlier time, but perhaps those at `_unseen` places
        self._is_exact = False
        self._unseen: list[Array] = []

    def added(self, places: Array) -> None:
        """Rows were added; they may get their times later."""
        self._unseen.append(places)
        self._is_exact = False

    def put(self, times: Array) -> None:
        """Rows have got other times."""
        self._bound = min(self._bound, _first(times))
        self._is_exact = False

    def removed(self) -> None:
        """Rows were removed."""
        self._is_exact = False

    def bound(self) -> int:
        if self._unseen:
            unseen, self._unseen = np.concatenate(self._unseen), []
            self._bound = min(self._bound, _first(self._times()[unseen[self._alive()[unseen]]]))
        return self._bound

    def earliest(self) -> int:
        if not self._is_exact:
            times, self._unseen = self._times(), []
            self._bound, self._is_exact = _first(times[self._alive()[: len(times)]]), True
        return self._bound


def _first(times: Array) -> int:
    return int(times.min(initial=NEVER_DUE, where=times != NAT))
