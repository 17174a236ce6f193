"""`LayeredTable`: the state of a keyed operator that works on columns (`apply_batch`).

Keys that are in use are rows of a table; the others may rest in layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamwork.components.columns import distinct
from streamwork.components.field_types import FieldType
from streamwork.components.hashing import hash_columns
from streamwork.components.schema import fields_of
from streamwork.components.values import Record
from streamwork.state.key_places import KeyPlaces
from streamwork.state.layers import Layers
from streamwork.state.table import Table
from streamwork.state.table_columns import NumpyColumn, longer

Array = np.ndarray[Any, Any]


REPEATED = 4
"""If keys occur so often in a batch, on average, they are numbered before they are looked up."""


class Placed(NamedTuple):
    """The keys of a batch: distinct ones in the order of their first rows."""

    codes: Array
    """By row: the index of its key."""
    places: Array
    """By key."""
    new: Array
    """The places of keys that were not in use."""
    rows: Array | None
    """By key: its first row; None if `keys` are known."""
    keys: pa.RecordBatch | None


class LayeredTable(Table):
    """`place` brings the rows of keys in; `cool` lets them rest again. All its columns are numpy arrays."""

    def __init__(self, key: Mapping[str, FieldType], record: type[Record]) -> None:
        super().__init__(key, None, record, all_numpy=True)
        self.layers: Layers | None = None
        self._alive = 0
        self._gone = KeyPlaces(key)  # keys that were removed since the last checkpoint: a layer may still have them
        self._recent = np.empty(0, bool)  # by place: used since `cool` last considered it
        self._codes = np.empty(0, np.int32)  # by place: scratch of `place_batch`
        self._repeats = True  # keys of the last batch

    def __len__(self) -> int:
        """How many keys are alive."""
        return self._alive

    @property
    def in_use(self) -> int:
        """How many keys are in the table."""
        return len(self._rows)

    @property
    def arrays(self) -> dict[str, Array]:
        """The columns of the record, by place. Valid until the next `place`."""
        return {name: column.all_numbers for name, column in self._columns.items() if isinstance(column, NumpyColumn)}

    def place(self, keys: pa.RecordBatch) -> Array:
        return self._placed(keys)[0]

    def place_batch(self, keys: pa.RecordBatch) -> Placed:
        """Find or add the keys of a batch, and number the distinct ones. They count as changed."""
        found = self._numbered_first(keys) if self._repeats else self._placed_first(keys)
        self._repeats = len(found.places) * REPEATED <= keys.num_rows
        self._changed[found.places] = True
        return found

    def withdraw(self, placed: Placed) -> None:
        """The batch has failed: remove the keys that it has added."""
        self.forget(placed.new[~self._is_stored[placed.new]])

    def _numbered_first(self, keys: pa.RecordBatch) -> Placed:
        codes, own = distinct(keys, list(self._key))
        places, new = self._placed(own)
        return Placed(codes, places, new, None, own)

    def _placed_first(self, keys: pa.RecordBatch) -> Placed:
        places, new = self._placed(keys)
        if len(self._codes) < self._rows.room:
            self._codes = np.empty(self._rows.room, np.int32)
        numbers = np.arange(len(places), dtype=np.int32)
        self._codes[places[::-1]] = numbers[::-1]  # of several rows with one place, the first one remains
        first = np.flatnonzero(self._codes.take(places) == numbers)
        own = places[first]
        self._codes[own] = numbers[: len(own)]
        return Placed(self._codes.take(places), own, new, first, None)

    def _placed(self, keys: pa.RecordBatch) -> tuple[Array, Array]:
        places, new = self._place(keys)
        self._alive += len(new)
        if self.layers is not None:
            if len(new):
                self._warm(new)
            self._recent[places] = True
        return places, new

    def forget(self, places: Array) -> None:
        """Remove keys; a place may come several times."""
        before = self.in_use
        if self.layers is not None and len(places):
            self._gone.place(self.keys(places))
        super().forget(places)
        self._alive -= before - self.in_use

    # ---- keys that rest -------------------------------------------------------------------------------------------

    def rest(self, rows: pa.Table, key: list[str]) -> None:
        """Begin with rows that all rest, or let those of the table rest: `rows` are these."""
        self.layers = Layers(rows, key)
        self._alive = rows.num_rows
        self._recent = np.zeros(self._rows.room, bool)

    def wake(self) -> None:
        """Between two epochs: bring all keys in and drop the layers."""
        assert self.layers is not None
        for layer in self.layers:
            for batch in layer.rows.select(list(self._key)).to_batches():
                _, new = self._place(batch)
                self._alive += len(new)
                if len(new):
                    gone = self._warm(new)
                    self._drop(gone)
                    self._alive -= len(gone)
        self.layers = None
        self._gone = KeyPlaces(self._key)

    def cool(self, most: int) -> None:
        """Let keys rest until at most so many are in use: first those that were not used since the last call, then all."""
        assert self.layers is not None and not self.is_changed
        places = self.places()
        self._drop(places[~self._recent[places]])
        if self.in_use > most:
            self._drop(self.places())
        self._recent[:] = False

    def end_checkpoint(self, delta: pa.Table | None = None) -> None:
        """All rows are stored now; `delta` are those that changed."""
        super().end_checkpoint()
        if self.layers is not None:
            if delta is not None:
                self.layers.add(delta, self._alive)
            if len(self._gone):
                self._gone = KeyPlaces(self._key)

    def _warm(self, places: Array) -> Array:
        """Bring the rows of new keys in, as far as layers have them. Returns the places of those that layers say are gone."""
        assert self.layers is not None
        keys, gone = self.keys(places), np.empty(0, np.int64)
        if len(self._gone):
            left = np.flatnonzero(self._gone.find(keys) < 0)
            places, keys = places[left], keys.take(pa.array(left))
        hashes = hash_columns(keys.columns, keys.num_rows)
        for layer in self.layers:
            if not len(places):
                break
            asked, rows = layer.find(hashes, keys)
            if not len(asked):
                continue
            found, mine = layer.take(rows), places[asked]
            is_gone = found.column("__deleted").to_numpy()
            if is_gone.any():
                gone = np.concatenate([gone, mine[is_gone]])
                found, mine = found.filter(pa.array(~is_gone)), mine[~is_gone]
            self._load(mine, found)
            self._alive -= len(mine)  # they were counted as new
            left = np.ones(len(places), bool)
            left[asked] = False
            places, hashes, keys = places[left], hashes[left], keys.filter(pa.array(left))
        return gone

    def _load(self, places: Array, rows: pa.Table) -> None:
        """Rows as the last checkpoint has them."""
        start = 0
        for batch in rows.to_batches():
            some = places[start : start + batch.num_rows]
            for name in fields_of(self.record):
                column: Any = self._columns[name]
                column.put(some, column.given(batch.column(name)))
            start += batch.num_rows
        self._changed[places] = False
        self._is_stored[places] = True

    def _drop(self, places: Array) -> None:
        """Remove rows that rest in layers."""
        if len(places):
            self._rows.remove(places)

    def _make_room(self) -> None:
        super()._make_room()
        if self.layers is not None and len(self._recent) < self._rows.room:
            self._recent = longer(self._recent, self._rows.room)
