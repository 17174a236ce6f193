"""State files on disk: Parquet, written whole, named once, checked by hash before they are used."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.components import parquet_file
from streamwork.components.made import is_made
from streamwork.errors import Refused
from streamwork.state.chain import DELTA, SNAPSHOT, FileChain, ways
from streamwork.state.evolution import Misfits
from streamwork.state.keyed import InstanceState, KeyedState, State
from streamwork.state.layered_table import LayeredTable
from streamwork.state.merge import merge
from streamwork.state.rows import RowFormat
from streamwork.world import Disk, FileKind, FileRef

EAGER_ROWS = 100_000
"""A state of more rows stays in columns when it is restored; records are made for the keys that are used."""

SAMPLE = 1_000
"""Values of a column that are checked for repetition."""

STATE_FILE = FileKind(
    "SW-STATE-DAMAGED",
    "restore the file from a backup; nothing was changed, and the job does not start from wrong or empty state",
)


class StateFiles:
    """Reads and writes the state files below one job's folder."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder

    def load(self, rows: RowFormat, chain: FileChain, state: State) -> None:
        """Read a chain of files into a new `state`. Refuses like `tables`."""
        tables = self.tables(rows, chain)
        if isinstance(state, KeyedState | LayeredTable) and sum(table.num_rows for table in tables) > EAGER_ROWS:
            merged = merge(tables, rows.key_names)
            self._rest(rows, merged, state)
            if isinstance(state, KeyedState):
                rows.set_timers(merged, state)
        else:
            for table in tables:
                rows.decode(table, state)

    def tables(self, rows: RowFormat, chain: FileChain, drops: Collection[str] = ()) -> list[pa.Table]:
        """The rows of a chain, file by file in the order of epochs, by the first way whose files are all sound; without the fields
        that are dropped.

        Refuses a chain that has no such way, and a file whose schema no longer fits the component.
        """
        return [conformed(rows, ref, table, drops) for ref, table in self.as_stored(chain)]

    def as_stored(self, chain: FileChain) -> list[tuple[FileRef, pa.Table]]:
        """Like `tables`, in the schemas that the files have."""
        trouble: Refused | None = None
        for way in ways(chain):
            try:
                return [(ref, self.read(ref)) for ref in way]
            except Refused as damaged:
                trouble = trouble or damaged
        if trouble is not None:
            raise trouble
        return []

    def catch_up(self, rows: RowFormat, deltas: FileChain, state: State) -> None:
        """Bring further deltas into a `state` that stands right before them."""
        for ref in deltas:
            table = conformed(rows, ref, self.read(ref))
            if isinstance(state, KeyedState) and state.layers is not None:
                keys = rows.keys(table)
                state.warm(keys)
                state.changed.update(keys)
            rows.decode(table, state)
            if isinstance(state, KeyedState | LayeredTable) and state.layers is not None:
                state.end_checkpoint(table)

    def save(
        self,
        rows: RowFormat,
        state: State,
        chain: FileChain,
        instance: int,
        epoch: int,
        stem: str,
        memory: int | None = None,
    ) -> tuple[FileRef, ...]:
        """Write what changed. Returns the chain that holds the state now. `memory` is how many bytes its records may take."""
        return self.capture(rows, state, instance, epoch, stem, memory)(chain)

    def capture(
        self,
        rows: RowFormat,
        state: State,
        instance: int,
        epoch: int,
        stem: str,
        memory: int | None = None,
        hurry: bool = False,
    ) -> Callable[[FileChain], tuple[FileRef, ...]]:
        """Copy what changed. The result writes it, behind a chain that holds the state before, and returns the new chain; it may be
        called later, from another thread, while the state changes. In a `hurry`, more is left to it: records are copied, which is
        quicker than to make columns of them, but costs more in all.
        """
        place = f"state/{rows.component}/{instance}/{epoch:012d}-{stem}"
        if isinstance(state, InstanceState):
            if state.record is None or state.record == state.saved:
                return tuple
            state.saved = copy.deepcopy(state.record)
            whole = rows.encode(state, epoch, everything=True)  # one row: its delta is the whole of it
            return lambda chain: (self.write(place + DELTA, whole), self.write(place + SNAPSHOT, whole))
        if not state.is_changed:
            return tuple
        if hurry and isinstance(state, KeyedState) and rows.copied is not None and _all_fits(state, memory):
            taken = state.take_changes(rows.copied)
            return lambda chain: self._add(chain, place, rows, rows.encode(taken, epoch, everything=False))
        table = rows.encode(state, epoch, everything=False)
        if isinstance(state, KeyedState | LayeredTable):
            self._end_checkpoint(rows, state, table, epoch, memory)
        else:
            state.end_checkpoint()
        return lambda chain: self._add(chain, place, rows, table)

    def _add(self, chain: FileChain, place: str, rows: RowFormat, delta: pa.Table) -> tuple[FileRef, ...]:
        return (*chain, self.write(place + DELTA, delta, rows.key_names)) if delta.num_rows else tuple(chain)

    def _end_checkpoint(
        self, rows: RowFormat, state: KeyedState | LayeredTable, delta: pa.Table, epoch: int, memory: int | None
    ) -> None:
        """Let keys rest that do not fit into memory; bring all in if most are in use."""
        most = None if memory is None else memory // state.bytes_each()
        in_use = state.in_use
        if most is not None and in_use > most * 7 // 8 and isinstance(state, KeyedState):
            state.used(state.changed)
        state.end_checkpoint(delta)
        if most is not None and in_use > most:
            self._cool(rows, state, epoch, most)
        elif state.layers is not None and in_use > len(state) * 3 // 4 and (most is None or len(state) < most * 3 // 4):
            state.wake()  # most of it is in use, and there is room for the rest

    def _rest(self, rows: RowFormat, table: pa.Table, state: KeyedState | LayeredTable) -> None:
        """Leave rows in columns."""
        if isinstance(state, KeyedState):
            state.rest(table, rows.key_names, rows)
        else:
            state.rest(table, rows.key_names)

    def _cool(self, rows: RowFormat, state: KeyedState | LayeredTable, epoch: int, most: int) -> None:
        """Let records rest in columns, as far as there are more than `most`."""
        if state.layers is None:
            self._rest(rows, rows.encode(state, epoch, everything=True), state)
        state.cool(most)

    def read(self, ref: FileRef) -> pa.Table:
        """One state file, checked against its hash."""
        return parquet_file.from_bytes(ref.read(self._disk, self._folder, STATE_FILE))

    def schema(self, ref: FileRef) -> pa.Schema:
        """The schema of one state file, checked against its hash."""
        return pq.read_schema(pa.BufferReader(ref.read(self._disk, self._folder, STATE_FILE)))

    def write(self, path: str, table: pa.Table, key: Sequence[str] = ()) -> FileRef:
        """A whole file, durably, under a name that was never used before. No two rows have the same values of `key`.

        An epoch waits for its delta, and a snapshot soon replaces it: so it is written fast, without statistics of its keys, which
        are in no order.
        """
        others = [name for name in table.column_names if name not in key]
        repeating, fast = [name for name in others if _repeats(table.column(name))], path.endswith(DELTA)
        data = parquet_file.to_bytes(table, repeating, others if fast else True, fast=fast)
        return FileRef.write(self._disk, self._folder, path, data, table.num_rows)


def _repeats(column: pa.ChunkedArray) -> bool:
    """True if a dictionary of values makes a column smaller: its first values repeat. One of many different values costs much."""
    some = column.slice(0, SAMPLE)
    return column.type.num_fields > 0 or len(some) < SAMPLE or 2 * len(some.unique()) < SAMPLE


def conformed(rows: RowFormat, ref: FileRef, table: pa.Table, drops: Collection[str] = ()) -> pa.Table:
    """The rows of a file in the current schema, without the fields that are dropped. Refuses a file that does not fit the
    component.
    """
    if misfits := rows.misfits(table.schema, drops):
        raise schema_error(rows, ref, misfits)
    return rows.evolution(table)


def schema_error(rows: RowFormat, ref: FileRef, misfits: Misfits) -> Refused:
    """The error for a state file that does not fit its component, with the ways out."""
    component, record = rows.component, rows.record.__name__
    names_fields = "the event that the field comes from" if is_made(rows.record) else record
    ways = []
    if misfits.gone and not misfits.key:
        names = [text.partition(" ")[0] for text in misfits.gone]
        ways.append(f"if a field was renamed, say so in renamed_from of {names_fields}")
        ways.append(
            "if it is no longer needed, start once with " + " ".join(f"--drop-state {component}.{n}" for n in names)
        )
    if misfits.key:
        ways.append(
            "a key cannot be changed: if only the name of a field was, say so in renamed_from of the event; else change it back, "
            "or give the component a new id, and drop the state of the old one"
        )
    elif not is_made(rows.record):
        ways.append(f"give {record} the next schema_version, and a migrate() that makes the new record of a stored row")
    ways.append(f"or begin with empty state: start once with --drop-state {component}")
    return Refused(
        "SW-STATE-SCHEMA",
        f"the stored state of {component} no longer fits {record} and its key: "
        f"{'; '.join((*misfits.key, *misfits.gone, *misfits.other))} ({ref.path})",
        f"change {record} or the key back; {'; '.join(ways)}",
    )


def _all_fits(state: KeyedState, memory: int | None) -> bool:
    """True if all records are in memory, and none has to leave it."""
    return state.layers is None and (memory is None or state.in_use * state.bytes_each() <= memory * 7 // 8)
