"""Records as rows of a state file, and back.

A row: the key columns, the record's columns, then `__group` (key group), `__epoch` (checkpoint that wrote the row),
`__deleted` (the key is gone) and `__timers`. DuckDB, Polars, pandas and Spark read it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streamwork.components import Event, Key, Record
from streamwork.components.columns import misfit_error, to_structs
from streamwork.components.schema import Misfit, arrow_schema, build_column, fields_of

TIMERS = pa.list_(pa.struct([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("clock", pa.string())]))
OWN_FIELDS = (
    pa.field("__group", pa.int32()),
    pa.field("__epoch", pa.int64(), nullable=False),
    pa.field("__deleted", pa.bool_(), nullable=False),
    pa.field("__timers", TIMERS),
)


class RowFormat:
    """The rows of one keyed component."""

    def __init__(self, component: str, event: type[Event], key: Key, record: type[Record], groups: int) -> None:
        self.component = component
        self.record = record
        self._key = key
        self._groups = groups
        self._key_types = [fields_of(event)[name] for name in key.fields]
        key_fields = [pa.field(n, t.arrow, t.nullable) for n, t in zip(key.fields, self._key_types, strict=True)]
        self.schema = pa.schema([*key_fields, *arrow_schema(record), *OWN_FIELDS])

    def encode(self, records: dict[Any, Record], keys: Iterable[Any], epoch: int) -> pa.Table:
        """The rows of `keys`, checked; a record whose value does not fit its column is refused, naming it."""
        keys = list(keys)
        kept = [records[key] for key in keys]
        try:
            columns = [t.build(self._key.column(i, keys)) for i, t in enumerate(self._key_types)]
            columns += [build_column(self.record, name, kept) for name in self.record.__struct_fields__]
        except Misfit as misfit:
            raise misfit_error(misfit, self.record, kept, self.component) from None
        count = len(keys)
        columns += [
            pa.array(self._key.groups(keys, self._groups), pa.int32()),
            pa.repeat(pa.scalar(epoch, pa.int64()), count),
            pa.repeat(pa.scalar(False), count),
            pa.array([[]] * count, TIMERS),
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def decode(self, table: pa.Table, records: dict[Any, Record]) -> None:
        """Bring the rows of one file into `records`: later files win."""
        key_columns = [
            field.restore(table.column(name).to_pylist())
            for name, field in zip(self._key.fields, self._key_types, strict=True)
        ]
        keys = list(key_columns[0]) if len(key_columns) == 1 else list(zip(*key_columns, strict=True))
        columns = [table.column(name).combine_chunks() for name in self.record.__struct_fields__]
        batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.record))
        if columns:
            records.update(zip(keys, to_structs(self.record, batch), strict=True))
        else:
            records.update((key, self.record()) for key in keys)
        for key, deleted in zip(keys, table.column("__deleted").to_pylist(), strict=True):
            if deleted:
                records.pop(key, None)
