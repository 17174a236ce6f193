"""`RowCheck`: rows of a component's state that come from outside, brought to the columns of its state files, or refused.

Columns are found by name: those of key and record, as `state export` writes them. A type may differ if every value is kept: a
narrower number, large text, a time in another unit. `__timers` is optional; `__group` and `__epoch` are computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import TimerClock
from streamwork.components.columns import python_values
from streamwork.components.field_types import FieldType, Misfit, relaxed, show
from streamwork.connectors.parquet_types import fits
from streamwork.engine.instance import row_format
from streamwork.errors import Refused
from streamwork.job import Graph, Node
from streamwork.state.rows import TIMERS, RowFormat
from streamwork.state.view import INSTANCE
from streamwork.statefiles.component_state import Shape
from streamwork.statefiles.plain_values import plain_rows

PIECE = 1 << 16
OWN = {"__group", "__epoch", "__deleted", "__timers"}
ACTION = "correct the rows: `streamwork state export job.py COMPONENT rows.parquet` shows columns and types. Nothing was written"


@dataclass(frozen=True)
class RowCheck:
    """The rows of one component."""

    shape: Shape
    rows: RowFormat
    groups: int
    instances: int  # how many there are
    has_timers: bool

    @classmethod
    def of(cls, graph: Graph, node: Node, groups: int, instances: int) -> RowCheck:
        return cls(
            Shape.of(node),
            row_format(graph, node, groups),
            groups,
            instances,
            node.key is not None and node.sub_key is None and hasattr(node.component, "on_timer"),
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of a state file; of instance state, `__instance` comes first."""
        if self.shape.key:
            return self.rows.schema
        return self.rows.schema.insert(0, pa.field(INSTANCE, pa.int32()))

    def checked(self, table: pa.Table, where: str, epoch: int, defaults: bool = False) -> pa.Table:
        """The rows as state of a checkpoint. With `defaults`, a column may be missing whose field has one."""
        table = self._completed(table, where, epoch, defaults)
        batches = [self._batch(batch, where, epoch) for batch in table.to_batches(max_chunksize=PIECE)]
        found = pa.Table.from_batches(batches, self.schema)
        self._check_unique(found, where)
        return found

    def by_instance(self, table: pa.Table) -> dict[str, pa.Table]:
        """The rows of every instance that has some, as its file holds them."""
        if not table.num_rows:
            return {}
        numbers: np.ndarray[Any, Any]
        if not self.shape.key:
            numbers = np.asarray(table.column(INSTANCE))
            table = table.drop_columns([INSTANCE])
        else:
            numbers = np.asarray(table.column("__group")).astype(np.int64) * self.instances // self.groups
        return {str(one): table.filter(pa.array(numbers == one)) for one in np.unique(numbers).tolist()}

    # ---- columns --------------------------------------------------------------------------------------------------

    def _completed(self, table: pa.Table, where: str, epoch: int, defaults: bool) -> pa.Table:
        wanted = [*self.shape.identity, *self.shape.record]
        names = table.column_names
        if twice := [name for name in names if names.count(name) > 1]:
            raise self._refused(where, f"has two columns {twice[0]!r}")
        if unknown := [name for name in names if name not in wanted and name not in OWN]:
            raise self._refused(where, f"has a column {unknown[0]!r}; the columns are {', '.join(wanted)}")
        given = self.rows.defaults if defaults else {}
        missing = [name for name in wanted if name not in names]
        if unfilled := [name for name in missing if name not in given]:
            raise self._refused(where, f"has no column {unfilled[0]!r}; the columns are {', '.join(wanted)}")
        for name in missing:
            table = table.append_column(name, given[name].take(pa.array(np.zeros(table.num_rows, np.int64))))
        return table

    def _batch(self, batch: pa.RecordBatch, where: str, epoch: int) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        if not self.shape.key:
            columns[INSTANCE] = self._instances(batch, where)
        for name, kind in self.rows.fields.items():
            try:
                columns[name] = _column(kind, batch.column(name))
            except Misfit as misfit:
                raise self._refused(
                    where, f"has in column {name!r}: {misfit}{self._key_of(misfit, batch, name)}"
                ) from None
            except _Unfit as unfit:
                raise self._refused(where, f"has a column {name!r} {unfit}") from None
        names = batch.schema.names
        keys = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        columns["__group"] = self.rows.groups(keys)
        columns["__epoch"] = pa.repeat(pa.scalar(epoch, pa.int64()), batch.num_rows)
        gone = batch.column("__deleted") if "__deleted" in names else pa.repeat(pa.scalar(False), batch.num_rows)
        columns["__deleted"] = gone.fill_null(False)
        columns["__timers"] = self._timers(batch, where) if "__timers" in names else _none(batch.num_rows)
        schema = self.schema
        return pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)

    def _instances(self, batch: pa.RecordBatch, where: str) -> pa.Array:
        column = batch.column(INSTANCE)
        if not pa.types.is_integer(column.type):
            raise self._refused(where, f"column {INSTANCE!r} is {column.type}, and not a number of an instance")
        allowed = range(self.instances)
        wrong = [number for number in column.to_pylist() if number not in allowed]
        if wrong:
            raise self._refused(where, f"has {INSTANCE} {wrong[0]}, and the instances are 0 to {self.instances - 1}")
        return column.cast(pa.int32())

    def _timers(self, batch: pa.RecordBatch, where: str) -> pa.Array:
        column = batch.column("__timers")
        if pa.types.is_null(column.type):
            return _none(batch.num_rows)
        if not fits(column.type, TIMERS):
            raise self._refused(where, f"column '__timers' is {column.type}, which does not fit {TIMERS}")
        found = column.cast(TIMERS).fill_null([])
        flat = found.flatten()
        if len(flat) and not self.has_timers:
            raise self._refused(where, f"has timers, and {self.shape.title} has none")
        clocks = {clock.value for clock in TimerClock}
        if flat.null_count or flat.field("at").null_count or set(flat.field("clock").to_pylist()) - clocks:
            raise self._refused(
                where, f"has a timer without a time, or whose clock is none of {', '.join(sorted(clocks))}"
            )
        return found

    def _check_unique(self, table: pa.Table, where: str) -> None:
        key = list(self.shape.identity)
        counted = table.select(key).group_by(key, use_threads=False).aggregate([([], "count_all")])
        more = counted.filter(pc.greater(counted.column("count_all"), 1))
        if more.num_rows:
            row = next(plain_rows(more.select(key).slice(0, 1)))
            raise self._refused(where, f"has several rows of the key {', '.join(f'{n}={v}' for n, v in row.items())}")

    def _key_of(self, misfit: Misfit, batch: pa.RecordBatch, name: str) -> str:
        """The key of the first row that has a null where none may be, as text."""
        place = -1 if misfit.value is not None else batch.column(name).is_null().index(True).as_py()
        if place < 0:
            return ""
        key = [one for one in self.shape.identity if one in batch.schema.names]
        (row,) = plain_rows(pa.Table.from_batches([batch]).select(key).slice(place, 1))
        return f" (key {', '.join(f'{one}={show(value)}' for one, value in row.items())})"

    def _refused(self, where: str, what: str) -> Refused:
        return Refused("SW-STATE-EDIT", f"{where} does not fit the state of {self.shape.component}: it {what}", ACTION)


class _Unfit(Exception):
    """A column of a type that does not fit, or a value that cannot be kept as it is."""


def _column(kind: FieldType, column: pa.Array) -> pa.Array:
    """A column in the type of its field. Raises Misfit for a value that is none of the field."""
    if not fits(column.type, kind.arrow):
        raise _Unfit(f"of type {column.type}, which does not fit {kind.name} ({kind.arrow})")
    try:
        cast = column.cast(relaxed(kind.arrow))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _Unfit(f"with a value that {kind.name} cannot hold ({error})") from None
    if kind.arrow.num_fields:  # values inside are checked one by one
        return kind.build(python_values(kind, cast))
    if cast.null_count and not kind.nullable:
        raise Misfit(None, kind.name)
    kind.check_column(cast)
    return cast


def _none(count: int) -> pa.Array:
    return pa.ListArray.from_arrays(np.zeros(count + 1, np.int32), pa.nulls(0, TIMERS.value_type), type=TIMERS)
