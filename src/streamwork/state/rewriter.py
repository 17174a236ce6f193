"""`StateRewriter`: rewrites the state of components, as a restore plan says, file to file.

Keys go to the instance of their key group; a row keeps its timers and the epoch that wrote it. Rows are brought to the columns
that the component has now (`Evolution`). Instances of which nothing is stored get no file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Record
from streamwork.components.batches import take
from streamwork.errors import JobFailed, StreamworkError, described, raised_at
from streamwork.state.chain import DELTA, SNAPSHOT
from streamwork.state.files import StateFiles
from streamwork.state.keyed import InstanceState
from streamwork.state.merge import merge
from streamwork.state.restore_plan import ComponentPlan, Piece
from streamwork.state.rows import RowFormat
from streamwork.world import Disk, FileRef

Rescale = Callable[[list[Record], int], Sequence[Record | None]]
"""The records of all instances, and how many instances there are now -> the records of these."""

Chains = dict[str, tuple[FileRef, ...]]


class StateRewriter:
    def __init__(self, disk: Disk, target: StateFiles, epoch: int, stem: str) -> None:
        """Files go to `target`, under names with epoch and stem, which no other file has."""
        self._disk = disk
        self._target = target
        self._epoch = epoch
        self._stem = stem
        self._drops: Collection[str] = ()
        self._last: tuple[Piece | None, pa.Table | None] = (None, None)  # the chain that was read last

    def write(self, rows: RowFormat, plan: ComponentPlan, rescale: Rescale | None = None) -> Chains:
        """The new chain of each instance. `rescale` divides the records of instances, if the plan asks for it."""
        self._drops = plan.drops
        if rows.key_names:
            return self._write_keys(rows, plan)
        if plan.divides:
            assert rescale is not None, "the fit check asks for it"
            return self._divide(rows, plan, rescale)
        return {
            instance: ()
            if (record := self._record(rows, pieces[0])) is None
            else self._write_record(rows, instance, record)
            for instance, pieces in plan.pieces.items()
        }

    # ---- state by key ---------------------------------------------------------------------------------------------

    def _write_keys(self, rows: RowFormat, plan: ComponentPlan) -> Chains:
        written: Chains = {}
        for instance, pieces in plan.pieces.items():
            found = [table for piece in pieces if (table := self._of(rows, piece)) is not None and table.num_rows]
            if not found:
                written[instance] = ()
                continue
            path = f"{self._place(rows, instance)}{SNAPSHOT}"
            written[instance] = (self._target.write(path, pa.concat_tables(found), rows.key_names),)
        return written

    def _of(self, rows: RowFormat, piece: Piece) -> pa.Table | None:
        """The rows of a piece."""
        table = self._whole(rows, piece)
        if table is None or piece.groups is None:
            return table
        group = table.column("__group")
        mine = pc.and_(pc.greater_equal(group, piece.groups.start), pc.less(group, piece.groups.stop))
        return take(table, pc.indices_nonzero(mine).to_numpy())

    def _whole(self, rows: RowFormat, piece: Piece) -> pa.Table | None:
        """All rows of a chain. Neighbouring instances often take theirs of the same one."""
        known, table = self._last
        if known is None or (known.folder, known.chain) != (piece.folder, piece.chain):
            tables = self._tables(rows, piece)
            table = merge(tables, rows.key_names) if tables else None
            self._last = piece, table
        return table

    # ---- state by instance ----------------------------------------------------------------------------------------

    def _divide(self, rows: RowFormat, plan: ComponentPlan, rescale: Rescale) -> Chains:
        pieces = next(iter(plan.pieces.values()))  # each instance has all of them
        records = [record for piece in pieces if (record := self._record(rows, piece)) is not None]
        if not records:
            return dict.fromkeys(plan.pieces, ())
        divided = _divided(rows, records, len(plan.pieces), rescale)
        return {
            instance: () if record is None else self._write_record(rows, instance, record)
            for instance, record in zip(plan.pieces, divided, strict=True)
        }

    def _record(self, rows: RowFormat, piece: Piece) -> Record | None:
        state = InstanceState()
        for table in self._tables(rows, piece):
            rows.decode(table, state)
        return state.record

    def _write_record(self, rows: RowFormat, instance: str, record: Record) -> tuple[FileRef, ...]:
        state, place = InstanceState(), self._place(rows, instance)
        state.record = record
        table = rows.encode(state, self._epoch, everything=True)
        return self._target.write(place + DELTA, table), self._target.write(place + SNAPSHOT, table)

    # ---- files ----------------------------------------------------------------------------------------------------

    def _tables(self, rows: RowFormat, piece: Piece) -> list[pa.Table]:
        return StateFiles(self._disk, piece.folder).tables(rows, piece.chain, self._drops)

    def _place(self, rows: RowFormat, instance: str) -> str:
        return f"state/{rows.component}/{instance}/{self._epoch:012d}-{self._stem}"


def _divided(rows: RowFormat, records: list[Record], count: int, rescale: Rescale) -> Sequence[Record | None]:
    """What the author's function makes of the records, checked."""
    try:
        found = list(rescale(records, count))
    except StreamworkError:
        raise
    except Exception as error:
        raise _cannot_divide(rows, f"raised {described(error)}{raised_at(error)[1]}") from error
    if len(found) != count or any(record is not None and type(record) is not rows.record for record in found):
        kind = rows.record.__name__
        raise _cannot_divide(rows, f"returned {found!r:.200}, which is not a list of {count} {kind} records (or None)")
    return found


def _cannot_divide(rows: RowFormat, why: str) -> JobFailed:
    return JobFailed(
        "SW-STATE-RESCALE",
        f"rescale() of {rows.component} {why}",
        "correct it and start again, or go back to the parallelism that the component had: the state is as it was",
        retryable=False,
    )
