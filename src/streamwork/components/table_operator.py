"""Operators on whole columns whose state is a table: one row per key and sub-key. Windows, tables and joins are such operators.

A wave brings batches to the ports of an operator, then perhaps advances of time:

1. `apply_rows` is called for each batch that has arrived, port by port. What it emits names the rows that it comes from.
2. `on_time` is called once per clock whose time has advanced, with the time that it has come to. What it emits names the time at
   which it was due. The engine gives it the place in the order of events that it would have if each advance were handled alone.
3. `on_checkpoint` is called before a checkpoint, when everything before it was applied.

Everything that arrives in a wave is applied before time advances in it. A row is never applied after an advance that comes
behind it. So results must not depend on where the input is cut into batches: rows may be judged by their own watermark and by the
state, but not by how many of them come together. Times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from streamwork.components.collector import MAIN, EventCollector, TimerClock
from streamwork.components.generics import type_arguments
from streamwork.components.instance import Instance
from streamwork.components.operator import AnyOperator, E, O, R, check_record
from streamwork.components.values import Event, Record

Array = np.ndarray[Any, Any]
NEVER = -(1 << 63)
"""The watermark of a partition before its first event, and of events that come from no row."""


class Rows(NamedTuple):
    """Events that have arrived at one port."""

    batch: pa.RecordBatch
    watermarks: Array
    """That of each event's own source partition, just before the event. For what a timer has emitted by event time, the
    time at which it was due; for what `on_time` has emitted, just before that time; or later, if `emit_batch` was given
    `watermarks`. `NEVER` before a partition's first event, and for events that come from no row (a batch of `apply_batch`, rows
    emitted without `rows`). Only with `judges_lateness`; else all are `NEVER`."""
    port: str = MAIN


class StateTable(Protocol):
    """The state of one instance: a row per key and sub-key, with the columns of the record. A place is the number of a row.

    Columns of int, float, bool and datetime are numpy arrays (`components.keyed_columns`); all others are Arrow arrays.
    """

    def __len__(self) -> int:
        """How many rows there are."""

    def find(self, keys: pa.RecordBatch) -> Array:
        """The place of each row of key and sub-key columns; -1 where there is none."""

    def place(self, keys: pa.RecordBatch) -> Array:
        """The place of each row of key and sub-key columns. Rows that are new hold the defaults of the record."""

    def matches(self, keys: pa.RecordBatch, nulls: bool = False) -> tuple[Array, Array]:
        """For key columns without the sub-key: (row of `keys`, place) of all rows of state with that key, ordered by row, then by
        the order of their addition. A null matches nothing; with `nulls`, it matches null. After a restore, the order is that of
        the last change: results that depend on an order need a sort by values.
        """

    def places(self) -> Array:
        """The places of all rows."""

    def numbers(self, name: str, places: Array) -> Array:
        """The values of a plain column: a numpy copy."""

    def values(self, name: str, places: Array) -> pa.Array:
        """The values of any column, or of a key or sub-key column, as Arrow."""

    def keys(self, places: Array) -> pa.RecordBatch:
        """The key and sub-key columns."""

    def put(self, name: str, places: Array, values: Array | pa.Array) -> None:
        """Store values of one column. These rows count as changed."""

    def forget(self, places: Array) -> None:
        """Remove rows. Their places may be used again."""

    def due(self, name: str, until: int) -> Array:
        """The places of rows whose time is at or before `until`, ordered by that time, then by the key's bytes, then by the values
        of the sub-key. The column of times may be one of the sub-key. NaT is never due.
        """

    def earliest(self, name: str) -> int | None:
        """The smallest value of a column of times; None if there is none."""


class NoState(Record):
    """The record of a table operator that keeps nothing: ``TableOperator[Click, NoState, Partial]``. Its `state` is None."""


class TableCollector(EventCollector):
    """The collector of a `TableOperator`.

    `watermark` is the minimum over all inputs before the wave: it depends on where the input is cut.
    """

    __slots__ = ()

    def emit_batch(
        self,
        batch: pa.RecordBatch,
        channel: str = MAIN,
        *,
        rows: Array | None = None,
        times: Array | None = None,
        watermarks: Array | None = None,
    ) -> None:
        """Emit whole columns. In `apply_rows`, `rows` are the places in its batch that the events come from, in ascending order;
        without it they come from no row, and precede everything else of the wave. In `on_time`, `times` are the times at which they
        were due, in ascending order; without it, the time that the clock has come to. Single events (`emit`) come from no row.

        Components behind judge the lateness of an event by the watermark of its row, or by that just before its time. If it also
        comes from events that were kept, `watermarks` are those of these events (`Rows.watermarks`): then the later one of both
        counts. `NEVER` changes nothing. They need `rows` in `apply_rows`.
        """
        raise NotImplementedError


class TableOperator(AnyOperator, Generic[E, R, O]):
    """Takes whole columns at one or several ports, and keeps a row per key and sub-key; or, with `NoState`, nothing.

    ``stream.apply(operator, key=..., id=..., others={"right": (stream, key)})`` adds it to a job. One that keeps nothing needs no
    key; then it runs where its events are.

    The counters count rows that arrive. One that an emitted event names (`rows`) was delivered; if something was emitted without
    names in the same call, all of its rows were.
    """

    ports: Mapping[str, type[Event]] = {}
    """Names and types of the ports besides the main one: ``ports = {"right": Purchase}``."""

    reads_watermark: ClassVar[bool | None] = False

    late_channels: frozenset[str] = frozenset()
    """The channels for events that come too late. These are counted as `late`, also if no component reads the channel."""

    sub_key: type[Record] | None = None
    """Its fields follow the key in the state's key: a window's start, for example. Groups and routing use the key alone."""

    pure: bool = True
    """True if a failed call has changed nothing: the state is stored last, and nothing else is kept. Then a batch that fails is
    divided until the failing rows are known, and `on_error` applies to these. Else it runs under ``on_error="fail"`` only."""

    is_numbered: ClassVar[bool] = False
    """True if the last field of the sub-key is a number that only keeps rows apart. Such numbers may depend on where the input
    is cut; `streamwork.testing` does not compare them."""

    checks_values: ClassVar[bool] = True
    """False if it emits only values that it was given, or that are in range by their making: then what it emits is not checked
    for values that Python cannot hold (`FieldType.check_column`). Names, types and nulls of columns are always checked."""

    judges_lateness: bool = False
    """True if it reads `Rows.watermarks`."""

    clocks: frozenset[TimerClock] = frozenset()
    """The clocks whose advances `on_time` is called for."""

    shares_state: ClassVar[bool] = False
    """True for a table: a port of another operator that reads it gets its state, not its events. Both run in one chain."""

    def setup_instance(self, instance: Instance) -> None: ...

    def apply_rows(
        self, rows: Rows, state: StateTable, tables: Mapping[str, StateTable], collector: TableCollector
    ) -> None:
        """Rows have arrived. `tables` are the states of tables, by port."""
        raise NotImplementedError

    def on_time(
        self,
        clock: TimerClock,
        time: int,
        state: StateTable,
        tables: Mapping[str, StateTable],
        collector: TableCollector,
    ) -> None:
        """A clock has come to `time`: the minimum over all inputs for event time, the plan's time for processing time."""
        raise NotImplementedError

    def on_checkpoint(self, state: StateTable, collector: TableCollector) -> None:
        """A checkpoint follows. `collector.watermark` is the minimum over all inputs."""

    def next_time(self, clock: TimerClock, state: StateTable) -> int | None:
        """When `on_time` of that clock has something to do next; None if never. Processing time is advanced for it."""
        return None

    def types(self) -> tuple[type[Event], type[Record] | None, type[Event]]:
        """(type taken at the first port, type kept or None, type emitted)"""
        took, kept, gave = type_arguments(type(self), TableOperator)
        return took, None if kept is NoState else check_record(kept), gave
