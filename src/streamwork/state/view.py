"""`StateView`: the state of one component at one checkpoint, read from its files. For commands, benchmarks and tests.

A view reads what a manifest names and nothing else. Every file is checked against its hash; a chain with a damaged file is read
by another way if there is one, and refused otherwise (`SW-STATE-DAMAGED`). Records are made only for requested keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Record
from streamwork.state.chain import FileChain
from streamwork.state.files import StateFiles
from streamwork.state.layer import Layer
from streamwork.state.merge import merge
from streamwork.state.rows import RowFormat

INSTANCE = "__instance"
"""The column that stands in place of a key in instance state."""


class StateView:
    """Key -> record of one component, over all of its instances. Of instance state: instance number -> record.

    Where there is a sub-key, a key is the tuple of the fields of key and sub-key.
    """

    def __init__(self, files: StateFiles, rows: RowFormat, chains: Mapping[str, FileChain]) -> None:
        """`chains`: instance -> chain of state files, as a manifest names them for the component."""
        self._files = files
        self._rows = rows
        self._chains = chains

    def __len__(self) -> int:
        """The number of keys; of instance state, of instances that have a record."""
        return int(self._table.num_rows)

    def get(self, key: Any) -> Record | None:
        """The record of a key, or None. Raises JobFailed (SW-TYPE-VALUE) for a key of another type."""
        if not self._rows.key_names:
            return self.records().get(key)
        found = self._rows.find(self._index, [key], self._rows.hashes([key])) if len(self) else ()
        return next((record for _, _, record in found), None)

    def keys(self) -> list[Any]:
        if not self._rows.key_names:
            return list(self._table.column(INSTANCE).to_pylist())
        return self._rows.keys(self._table)

    def records(self) -> dict[Any, Record]:
        """Every key with its record."""
        return dict(zip(self.keys(), self._rows.records(self._table), strict=True))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every key as one row: the fields of the key (or `__instance`) and of the record, by name."""
        names = [name for name in self._table.column_names if name == INSTANCE or not name.startswith("__")]
        for batch in self._table.select(names).to_batches():
            yield from batch.to_pylist()

    def to_arrow(self) -> pa.Table:
        """Every key as one row, in the columns of a state file; instance state has `__instance` as its first column."""
        return self._table

    @cached_property
    def _table(self) -> pa.Table:
        tables = [table for instance, chain in self._chains.items() if (table := self._instance(int(instance), chain))]
        if tables:
            return pa.concat_tables(tables)
        schema = self._rows.schema
        return (schema if self._rows.key_names else schema.insert(0, pa.field(INSTANCE, pa.int32()))).empty_table()

    def _instance(self, instance: int, chain: FileChain) -> pa.Table | None:
        tables = self._files.tables(self._rows, chain)
        if not tables:
            return None
        if self._rows.key_names:
            return merge(tables, self._rows.key_names)
        last = tables[-1].slice(tables[-1].num_rows - 1)  # every file holds the whole record
        return last.add_column(0, pa.field(INSTANCE, pa.int32()), pa.array(np.full(len(last), instance, np.int32)))

    @cached_property
    def _index(self) -> Layer:
        return Layer(self._table, self._rows.key_names)
