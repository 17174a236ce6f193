"""Records as rows of a state file, and back.

A row: the key columns, those of the sub-key if there is one, the record's columns, then `__group` (key group), `__epoch`
(checkpoint that wrote the row), `__deleted` (the key is gone) and `__timers`. A key and sub-key have one row; the group depends on
the key alone. Instance state is one row without key columns, its `__group` null.
DuckDB, Polars, pandas and Spark read it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Event, Key, Record, Timer, TimerClock
from streamwork.components.batches import halving, take
from streamwork.components.columns import culprit, misfit_error, to_structs
from streamwork.components.defaults import defaults_of
from streamwork.components.field_types import FieldType, Misfit, Oversized, array_of, show
from streamwork.components.hashing import hash_columns
from streamwork.components.schema import arrow_schema, build_column, fields_of, flat_copy
from streamwork.errors import JobFailed
from streamwork.state.evolution import Evolution, Misfits
from streamwork.state.keyed import InstanceState, KeyedState, State
from streamwork.state.layer import Layer
from streamwork.state.layered_table import LayeredTable
from streamwork.state.table import Table

TIMERS = pa.list_(pa.struct([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("clock", pa.string())]))
NO_TIMERS = pa.nulls(0, TIMERS.value_type)  # pa.array would import pandas
OWN_FIELDS = (
    pa.field("__group", pa.int32()),
    pa.field("__epoch", pa.int64(), nullable=False),
    pa.field("__deleted", pa.bool_(), nullable=False),
    pa.field("__timers", TIMERS),
)

PIECE = 8_192
"""Records that are made into columns at a time. Each is read several times, so they should fit into the processor's cache."""


TABLE_PIECE = 1 << 20
"""Rows of a table that are made into columns at a time."""


class StateKind(Enum):
    """How a component's state is held in memory. In files there is no difference."""

    INSTANCE = "one record per instance"
    RECORDS = "a record per key"
    COLUMNS = "a row per key, for `apply_batch`"
    TABLE = "a row per key and sub-key, for a `TableOperator`"


class RowFormat:
    """The rows of one component's state."""

    def __init__(
        self,
        component: str,
        event: type[Event],
        key: Key | None,
        record: type[Record],
        groups: int,
        sub_key: type[Record] | None = None,
        kind: StateKind | None = None,
    ) -> None:
        """`kind`: without it, records by key if there is one, else the record of an instance."""
        self.component = component
        self.record = record
        self.copied = flat_copy(record)
        """Copies a record quickly; None if it has containers."""
        self._key = key
        self._groups = groups
        self._sub_key = sub_key
        self._kind = kind or (StateKind.RECORDS if key else StateKind.INSTANCE)
        known = fields_of(event)
        self._key_types = {name: known[name] for name in key.fields} if key else {}
        self._identity = {**self._key_types, **(fields_of(sub_key) if sub_key else {})}
        key_fields = [pa.field(name, kind.arrow, kind.nullable) for name, kind in self._identity.items()]
        schema = pa.schema([*key_fields, *arrow_schema(record), *OWN_FIELDS])
        renamed = {name: was for name, was in event.renamed_from.items() if name in self._key_types}
        if sub_key is not None:
            renamed |= sub_key.renamed_from
        self.defaults = defaults_of(record)
        self.evolution = Evolution(
            component,
            schema,
            record,
            self.defaults,
            self._key_types,
            fields_of(sub_key) if sub_key else (),
            {**renamed, **record.renamed_from},
        )
        """Brings rows that were written before the record or its key changed to the schema."""
        self.schema = self.evolution.schema
        self._thawed = [*self.key_names, *record.__struct_fields__, "__deleted"]

    def misfits(self, stored: pa.Schema, drops: Collection[str] = ()) -> Misfits:
        """Why rows of this schema cannot be used; nothing if they can. `drops` are fields that are left out."""
        return self.evolution.misfits(stored, drops)

    def new_state(self) -> State:
        match self._kind:
            case StateKind.TABLE:
                return Table(self._key_types, self._sub_key, self.record)
            case StateKind.COLUMNS:
                return LayeredTable(self._key_types, self.record)
            case StateKind.RECORDS:
                return KeyedState()
        return InstanceState()

    def fits(self, state: State) -> bool:
        """True if a state is of the kind that the component keeps: its operator may have been rewritten."""
        return type(state) is type(self.new_state())

    def encode(self, state: State, epoch: int, everything: bool) -> pa.Table:
        """What changed, or everything, as rows; a record whose value does not fit its column is refused, naming it."""
        if isinstance(state, InstanceState):
            assert state.record is not None
            try:
                return self._table([], self._columns([state.record]), epoch)
            except Misfit as misfit:
                raise self._error(misfit, [state.record]) from None
        if isinstance(state, Table):
            return self._encode_table(state, epoch, everything)
        assert self._key is not None
        keys = list(state.records) if everything else state.changed_keys()
        return _in_pieces(lambda piece: self._encode_records(state, piece, epoch), keys)

    def _encode_records(self, state: KeyedState, keys: Sequence[Any], epoch: int) -> pa.Table:
        kept: list[Any] = list(map(state.records.get, keys))
        gone = None
        if type(None) in set(map(type, kept)):
            gone, empty = [record is None for record in kept], self.record()
            kept = [empty if record is None else record for record in kept]
        try:
            key_columns = [self._key_column(name, keys) for name in self._key_types]
            waiting = [_stored(state.timers.get(key, ())) for key in keys] if state.timers else None
            return self._table(key_columns, self._columns(kept), epoch, gone, waiting)
        except Misfit as misfit:
            if isinstance(misfit, Oversized) and len(keys) > 1:
                raise
            raise self._error(misfit, kept, keys) from None

    def _encode_table(self, state: Table, epoch: int, everything: bool) -> pa.Table:
        """Keys that are gone, then rows that changed; no key is in both."""

        def encode(places: Any) -> pa.Table:
            keys = state.keys(places).columns
            groups = pa.array(state.groups(places, self._groups_of), pa.int32()) if self._key is not None else None
            columns = [self._checked(state, name, places) for name in fields_of(self.record)]
            return self._table(keys, columns, epoch, groups=groups)

        def encode_gone(keys: pa.RecordBatch) -> pa.Table:
            empty = self._columns([self.record()])
            columns = [column.take(pa.array(np.zeros(keys.num_rows, np.int64))) for column in empty]
            return self._table(keys.columns, columns, epoch, np.ones(keys.num_rows, bool))

        try:
            gone = [] if everything else [encode_gone(keys) for keys in state.removed() if keys.num_rows]
            changed = _in_pieces(encode, state.places() if everything else state.changed(), TABLE_PIECE)
        except Misfit as misfit:
            raise misfit_error(misfit, self.record, [], self.component) from None
        return pa.concat_tables([*gone, changed]) if gone else changed

    def _groups_of(self, keys: Sequence[pa.Array]) -> np.ndarray[Any, Any]:
        assert self._key is not None
        return self._key.column_groups(keys, self._groups)

    def _checked(self, state: Table, name: str, places: np.ndarray[Any, Any]) -> pa.Array:
        """Raises Misfit, with the field in `path`."""
        try:
            column = state.values(name, places)
            fields_of(self.record)[name].check_column(column)
        except Oversized:
            raise
        except Misfit as misfit:
            raise Misfit(misfit.value, misfit.expected, name) from None
        return column

    def _columns(self, records: list[Any]) -> list[pa.Array]:
        return [build_column(self.record, name, records) for name in self.record.__struct_fields__]

    def _error(self, misfit: Misfit, records: list[Any], keys: Sequence[Any] | None = None) -> JobFailed:
        error = misfit_error(misfit, self.record, records, self.component)
        place = culprit(misfit, self.record, records)
        if keys is not None and place is not None:
            error.cause += f" with key {show(keys[place])}"
        return error

    def _key_column(self, name: str, keys: Sequence[Any]) -> pa.Array:
        """Raises Oversized; a key that does not fit is refused."""
        place = self.key_names.index(name)
        try:
            return self._identity[name].build(list(keys) if len(self._identity) == 1 else [key[place] for key in keys])
        except Oversized:
            raise
        except Misfit as misfit:
            named = Misfit(misfit.value, misfit.expected, f"key {name}")
            raise misfit_error(named, self.record, [], self.component) from None

    def decode(self, table: pa.Table, state: State) -> None:
        """Bring the rows of one file into `state`: later files win."""
        if isinstance(state, InstanceState):
            for state.record in self.records(table):
                state.saved = state.record
            return
        if isinstance(state, Table):
            self._decode_table(table, state)
            return
        keys, some_gone = self.keys(table), has_gone(table)
        state.records.update(zip(keys, self.records(table), strict=True))
        if state.timers or some_gone:
            for key, deleted in zip(keys, table.column("__deleted").to_pylist(), strict=True):
                state.timers.pop(key, None)
                if deleted:
                    state.records.pop(key, None)
                    state.gone.add(key)
        self.set_timers(table, state)

    def _decode_table(self, table: pa.Table, state: Table) -> None:
        for batch in table.to_batches():
            keys, gone = batch.select(self.key_names), batch.column("__deleted")
            if pc.any(gone).as_py():
                state.forget(state.place(keys.filter(gone)))
                batch = batch.filter(pc.invert(gone))
                keys = batch.select(self.key_names)
            places = state.place(keys)
            for name in fields_of(self.record):
                state.put(name, places, batch.column(name))
        state.end_checkpoint()

    def set_timers(self, table: pa.Table, state: KeyedState) -> None:
        """Set the timers of the keys that have some."""
        timers = table.column("__timers")
        some = pc.greater(pc.fill_null(pc.list_value_length(timers), 0), 0)
        if not pc.any(some).as_py():
            return
        waiting = table.filter(some)
        for key, mine in zip(self.keys(waiting), waiting.column("__timers").to_pylist(), strict=True):
            for timer in mine:
                state.set_timer(key, Timer(timer["at"].astimezone(UTC), TimerClock(timer["clock"])))

    def hashes(self, keys: list[Any]) -> np.ndarray[Any, Any]:
        def some(given: Sequence[Any]) -> np.ndarray[Any, Any]:
            return hash_columns([self._key_column(name, given) for name in self._identity], len(given))

        return np.concatenate(list(halving(some, keys)))

    def find(
        self, layer: Layer, keys: list[Any], hashes: np.ndarray[Any, Any]
    ) -> Iterator[tuple[int, Any, Record | None]]:
        """(place, key, record) of those keys that a layer has a row of; no record where the row says that the key is gone."""
        places, rows = layer.candidates(hashes)
        if not len(rows):
            return
        order = np.argsort(rows, kind="stable")
        table = take(layer.rows.select(self._thawed), rows[order])
        gone = table.column("__deleted").to_pylist()
        found = zip(places[order].tolist(), self.keys(table), self.records(table), gone, strict=True)
        for place, key, record, deleted in found:
            if key == keys[place]:
                yield place, keys[place], None if deleted else record

    def keys(self, table: pa.Table) -> list[Any]:
        """The key values of the rows, as operators see them; with a sub-key, tuples of the fields of both."""
        columns = [field.restore(table.column(name).to_pylist()) for name, field in self._identity.items()]
        return list(columns[0]) if len(columns) == 1 else list(zip(*columns, strict=True))

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """The types of the columns of key, sub-key and record, by name."""
        return {**self._identity, **fields_of(self.record)}

    def groups(self, batch: pa.RecordBatch) -> pa.Array:
        """The key group of each row; of instance state null."""
        if self._key is None:
            return pa.nulls(batch.num_rows, pa.int32())
        return pa.array(self._groups_of([batch.column(name) for name in self._key_types]), pa.int32())

    @property
    def key_names(self) -> list[str]:
        """The columns of the key and sub-key: no two rows have the same values."""
        return list(self._identity)

    def records(self, table: pa.Table) -> list[Any]:
        """The records of the rows."""
        return [record for batch in table.to_batches() for record in to_structs(self.record, batch)]

    def _table(
        self,
        keys: Sequence[pa.Array],
        columns: Sequence[pa.Array],
        epoch: int,
        gone: Sequence[bool] | np.ndarray[Any, Any] | None = None,
        timers: Sequence[Any] | None = None,
        groups: pa.Array | None = None,
    ) -> pa.Table:
        """Without `gone`, none is; without `timers`, there are none; without `groups`, those of the keys."""
        count = len(keys[0]) if keys else 1
        if timers is not None:
            waiting = array_of(timers, TIMERS)
        else:
            waiting = pa.ListArray.from_arrays(np.zeros(count + 1, np.int32), NO_TIMERS, type=TIMERS)
        if self._key is None:
            groups = pa.nulls(count, pa.int32())
        elif groups is None:
            groups = pa.array(self._groups_of(keys[: len(self._key_types)]), pa.int32())
        own = [
            groups,
            pa.repeat(pa.scalar(epoch, pa.int64()), count),
            pa.repeat(pa.scalar(False), count) if gone is None else pa.array(gone, pa.bool_()),
            waiting,
        ]
        return pa.Table.from_arrays([*keys, *columns, *own], schema=self.schema)


def _in_pieces(encode: Callable[[Any], pa.Table], given: Any, piece: int = PIECE) -> pa.Table:
    """The rows of all that is given, encoded piece by piece: of a few, and within the limits of Arrow's arrays."""
    starts = range(0, max(len(given), 1), piece)
    tables = [table for start in starts for table in halving(encode, given[start : start + piece])]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def has_gone(table: pa.Table) -> bool:
    """Does a row say that its key is gone?"""
    return bool(pc.any(table.column("__deleted")).as_py())


def _stored(timers: Iterable[Timer]) -> list[dict[str, Any]]:
    return [
        {"at": timer.at, "clock": timer.clock.value} for timer in sorted(timers, key=lambda t: (t.at, t.clock.value))
    ]
