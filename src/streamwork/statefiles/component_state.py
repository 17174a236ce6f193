"""`ComponentState`: the rows of one component at one `StatePoint`, and what their columns mean.

They have the columns of a state file. If a job file is given and its record fits the files, rows are read as the job would
read them: fields that were added since have their defaults. Otherwise they are read as they were stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components.batches import take
from streamwork.engine.instance import row_format
from streamwork.epoch.savepoints.graph_record import NodeRecord
from streamwork.errors import Refused, WrongUse
from streamwork.job import Node
from streamwork.state import FileChain, StateView
from streamwork.state.merge import merge
from streamwork.state.rows import RowFormat
from streamwork.state.view import INSTANCE
from streamwork.statefiles.point import StatePoint

PIECE = 1 << 16
"""Rows that are put into order at a time."""
OWN = ("__group", "__epoch", "__deleted", "__timers")


@dataclass(frozen=True)
class Shape:
    """The columns of a component's state, by what they are."""

    component: str
    title: str  # the name of its class
    key: tuple[str, ...]  # none: one row per instance, by its number
    sub_key: tuple[str, ...]
    record: tuple[str, ...]

    @classmethod
    def of(cls, node: Node | NodeRecord) -> Shape:
        if isinstance(node, Node):
            assert node.keeps is not None
            key = () if node.key is None else node.key.fields
            sub_key = () if node.sub_key is None else node.sub_key.__struct_fields__
            return cls(node.id, node.title, tuple(key), tuple(sub_key), node.keeps.__struct_fields__)
        keys = [port.key for port in node.ports if port.key is not None]
        sub_key = () if node.sub_key is None else tuple(field.name for field in node.sub_key.fields)
        assert node.keeps is not None
        record = tuple(field.name for field in node.keeps.fields)
        return cls(node.id, node.component, keys[0] if keys else (), sub_key, record)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that no two rows have the same values of."""
        return (*self.key, *self.sub_key) if self.key else (INSTANCE,)

    @property
    def columns(self) -> tuple[str, ...]:
        """What people see: without the columns that start with two underscores, but for the number of an instance."""
        return (*self.identity, *self.record)


@dataclass(frozen=True)
class ComponentState:
    point: StatePoint
    shape: Shape
    rows: RowFormat | None  # of the job file, if its record fits the files

    @classmethod
    def of(cls, point: StatePoint, component: str) -> ComponentState:
        """Refuses a component without state, and one whose key is not known."""
        rows = None
        node = None
        if point.graph is not None:
            node = next((one for one in point.graph.stateful if one.id == component), None)
        if node is not None and point.graph is not None:
            rows = row_format(point.graph, node, point.identity.groups)
            if _misfits(point, rows, component):
                rows = None
        if rows is not None and node is not None:
            return cls(point, Shape.of(node), rows)
        stored = next((one for one in point.record.nodes if one.id == component), None) if point.record else None
        if stored is not None and stored.keeps is not None:
            return cls(point, Shape.of(stored), None)
        if node is not None and point.graph is not None:  # it does not fit, and nothing else says what its key is
            StateView(
                point.files, row_format(point.graph, node, point.identity.groups), point.chains[component]
            ).to_arrow()
        known = ", ".join(point.components) or "none"
        if component not in point.chains:
            raise WrongUse(
                "SW-STATE-COMPONENT", f"{point.title} has no component {component!r} with state", f"use one of: {known}"
            )
        raise WrongUse(
            "SW-STATE-COMPONENT",
            f"what the key of {component} is in {point.title} is not known without a job file that has the component",
            "name the job file that wrote it; a savepoint is read without one",
        )

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def table(self) -> pa.Table:
        """Every key as one row: the columns of a state file, of instance state with `__instance` first. In order of keys."""
        return in_order(self.unordered, self.shape.identity)

    @cached_property
    def unordered(self) -> pa.Table:
        chains = self.point.chains.get(self.shape.component, {})
        if self.rows is not None:
            return StateView(self.point.files, self.rows, chains).to_arrow()
        tables = [self._as_stored(int(instance), chain) for instance, chain in chains.items()]
        found = [table for table in tables if table is not None]
        return pa.concat_tables(found, promote_options="default") if found else self._empty()

    def _as_stored(self, instance: int, chain: FileChain) -> pa.Table | None:
        tables = [table for _, table in self.point.files.as_stored(chain)]
        if not tables:
            return None
        if self.shape.key:
            schema = pa.unify_schemas([table.schema for table in tables])
            tables = [pa.concat_tables([schema.empty_table(), table], promote_options="default") for table in tables]
            return merge(tables, self.shape.identity)
        last = tables[-1].slice(tables[-1].num_rows - 1)
        return last.add_column(0, pa.field(INSTANCE, pa.int32()), pa.array(np.full(len(last), instance, np.int32)))

    def _empty(self) -> pa.Table:
        """Without a file the types are not known; no row needs them."""
        fields = [pa.field(INSTANCE, pa.int32())] if not self.shape.key else []
        names = [name for name in self.shape.columns if name != INSTANCE]
        own = [pa.field("__group", pa.int32()), pa.field("__epoch", pa.int64()), pa.field("__deleted", pa.bool_())]
        return pa.schema([*fields, *(pa.field(name, pa.null()) for name in names), *own]).empty_table()

    @property
    def shown(self) -> pa.Table:
        """The rows with the columns of key and record alone."""
        return self.table.select(list(self.shape.columns))

    @cached_property
    def has_timers(self) -> bool:
        if "__timers" not in self.table.column_names:
            return False
        counts = pc.list_value_length(self.table.column("__timers"))
        return bool(pc.any(pc.greater(pc.fill_null(counts, 0), 0)).as_py())

    @property
    def is_current(self) -> bool:
        """True if the job file would write every file with the columns that it has."""
        chains = self.point.chains.get(self.shape.component, {}).values()
        return self.rows is not None and all(
            self.rows.evolution.is_current(self.point.files.schema(ref)) for chain in chains for ref in chain
        )

    @property
    def bytes(self) -> int:
        chains = self.point.chains.get(self.shape.component, {})
        return sum(ref.bytes for chain in chains.values() for ref in chain)


def _misfits(point: StatePoint, rows: RowFormat, component: str) -> bool:
    """True if a file does not fit the record of the job file. A damaged file is found when it is read."""
    for chain in point.chains.get(component, {}).values():
        for ref in chain:
            try:
                schema = point.files.schema(ref)
            except Refused:
                continue
            if rows.misfits(schema):
                return True
    return False


def in_order(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows in the order of their keys."""
    if table.num_rows < 2 or any(pa.types.is_null(table.schema.field(name).type) for name in key):
        return table
    columns = {str(place): _sortable(table.column(name)) for place, name in enumerate(key)}
    order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
    return picked(table, np.asarray(order))


def picked(table: pa.Table, places: np.ndarray[Any, Any]) -> pa.Table:
    """The rows at these places, in this order, piece by piece: one array may not hold them all."""
    pieces = []
    for start in range(0, len(places), PIECE):
        piece = places[start : start + PIECE].astype(np.int64)
        order = np.argsort(piece, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        pieces.append(take(table, piece[order]).take(pa.array(back)))
    return pa.concat_tables(pieces) if pieces else table.slice(0, 0)


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
