"""State files on disk: written whole, named once, checked by hash before they are used.

state/COMPONENT/INSTANCE/000000000042-FENCE-ATTEMPT.delta.parquet      what changed in epoch 42
state/COMPONENT/INSTANCE/000000000042-FENCE-ATTEMPT.snapshot.parquet   all of it at the end of epoch 42
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from streamwork.errors import Refused
from streamwork.state.keyed import InstanceState, KeyedState, State
from streamwork.state.rows import RowFormat
from streamwork.world import Disk

LONGEST_CHAIN = 20
"""After so many files the next checkpoint writes a snapshot: a restart then reads it and little more."""


class FileRef(msgspec.Struct, frozen=True):
    """A file that a manifest names: where (below the job's folder), what exactly, how much."""

    path: str
    sha256: str
    rows: int
    bytes: int


class StateFiles:
    """Reads and writes the state files below one job's folder."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder

    def load(self, rows: RowFormat, chain: Sequence[FileRef], state: State) -> None:
        """Bring a chain of files into `state`. Refuses a damaged file, and one that no longer fits the component."""
        for ref in chain:
            table = self.read(ref)
            if not table.schema.equals(rows.schema):
                raise misfitting_schema(rows, ref, table.schema)
            rows.decode(table, state)

    def save(
        self, rows: RowFormat, state: State, chain: Sequence[FileRef], instance: int, epoch: int, stem: str
    ) -> tuple[FileRef, ...]:
        """Write what changed, or everything if the chain has grown long. Returns the chain that holds the state now."""
        if isinstance(state, InstanceState):
            if state.record is None or state.record == state.saved:
                return tuple(chain)
            whole, state.saved = True, copy.deepcopy(state.record)
        else:
            if not state.changed:
                return tuple(chain)
            whole = len(chain) >= LONGEST_CHAIN
        path = f"state/{rows.component}/{instance}/{epoch:012d}-{stem}.{'snapshot' if whole else 'delta'}.parquet"
        ref = self._write(path, rows.encode(state, epoch, everything=whole))
        if isinstance(state, KeyedState):
            state.changed.clear()
        return (ref,) if whole else (*chain, ref)

    def read(self, ref: FileRef) -> pa.Table:
        """One state file, checked against its hash."""
        path = self._folder / ref.path
        try:
            data = self._disk.read(path)
        except FileNotFoundError:
            raise _damaged(path, "is missing") from None
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise _damaged(path, "is not what its checkpoint recorded (its sha256 differs)")
        # Without Arrow's thread pools: a process that ends right after using them may abort at its exit.
        return pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)

    def _write(self, path: str, table: pa.Table) -> FileRef:
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="zstd")
        data = buffer.getvalue().to_pybytes()
        target = self._folder / path
        self._disk.make_folder(target.parent)
        self._disk.create(target, data)
        return FileRef(path, hashlib.sha256(data).hexdigest(), table.num_rows, len(data))


def misfitting_schema(rows: RowFormat, ref: FileRef, found: pa.Schema) -> Refused:
    has = {field.name: field.type for field in found}
    wants = {field.name: field.type for field in rows.schema}
    gone = [f"{name} ({kind}) is no longer there" for name, kind in has.items() if name not in wants]
    new = [f"{name} ({kind}) is new" for name, kind in wants.items() if name not in has]
    other = [f"{name} was {has[name]} and is now {kind}" for name, kind in wants.items() if has.get(name, kind) != kind]
    return Refused(
        "SW-STATE-SCHEMA",
        f"the stored state of {rows.component} does not fit {rows.record.__name__} and its key any more: "
        + ("; ".join(gone + new + other) or "the order or nullability of its columns differs")
        + f" ({ref.path})",
        f"bring {rows.record.__name__} back to what it was, or give the component another id to begin with empty state",
    )


def _damaged(path: Path, what: str) -> Refused:
    return Refused(
        "SW-STATE-DAMAGED",
        f"{path} {what}",
        "bring the file back from a copy; nothing was changed, and the job does not start from wrong or empty state",
    )
