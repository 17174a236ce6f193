"""``LOG/transactions/``: the decisions about transactions, and the ledger rows.

It is a partition like the others. Each batch has one row, the outcome of a transaction; the ledger row is in the
batch's metadata. A transaction:

    1  takes the locks of all partitions, in order, and then that of ``transactions``: no other writer can append. Reads the
       ledger row; a registered fence above its own ends it: SW-SINK-FENCED;
    2  appends its events to the partitions; each batch names the transaction;
    3  syncs those partitions;
    4  appends *committed* with the new ledger row, and syncs. This one write is the commit, for all partitions and for
       the ledger;
    5  releases the locks.

| stopped | left on disk | read-committed readers | ledger | the next writer |
|---|---|---|---|---|
| in 1 | nothing | - | old | - |
| in 2 or 3 | batches of an undecided transaction | stop before them | old | appends *aborted*; readers skip them |
| in 4, before the write is complete | the same, and a torn record | stop before them | old | truncates the record, then the same |
| in 4, written but not synced | after kill -9 the commit | see all | new | syncs it. Power failure: one of the two rows above |
| in 5 | the commit | see all | new | - |

A writer that takes a partition's lock and finds batches of an undecided transaction at its end knows that the transaction's
writer has ended, because it would hold the lock. So undecided batches are only at the end of a partition.

When this partition rolls, all ledger rows are written again, so that an old segment can be removed once the events of its
transactions are removed.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from streamwork.components import LedgerRow
from streamwork.components.position import plain
from streamwork.components.sink import fenced
from streamwork.errors import Refused
from streamwork.log.decisions import SCHEMA, Decisions, Outcome, Ranges, Record
from streamwork.log.partition import Partition
from streamwork.log.writer import Writer


class Transactions:
    """Writes decisions. All methods but `open` need the lock, which `open` takes and `release` releases."""

    def __init__(self, decisions: Decisions, writer: Writer) -> None:
        self._decisions = decisions
        self._writer = writer
        self.rolled = False  # True after a roll, until the caller has run retention

    def open(self, timeout: float) -> None:
        self._writer.open(timeout)
        self._decisions.refresh()

    def release(self) -> None:
        self._writer.release()

    @property
    def is_open(self) -> bool:
        return self._writer.is_open

    def register(self, uid: str, sink: str, fence: int) -> None:
        self.check_owner(uid)
        row = self._decisions.row(uid, sink) or LedgerRow(0, None, "")
        self.check_fence(sink, row, fence)
        self._append(Record(Outcome.REGISTERED, "", uid, sink, msgspec.structs.replace(row, fence=fence)))

    def check_owner(self, uid: str) -> None:
        for owner, _ in self._decisions.rows():
            if owner != uid:
                raise Refused(
                    "SW-SINK-OWNED",
                    f"the log {self._decisions.partition.folder.parent} belongs to another job, or to this job in another "
                    f"root (uid {owner}, not {uid})",
                    "write to another log, or continue with the root that this log belongs to (--root)",
                )

    @staticmethod
    def check_fence(sink: str, row: LedgerRow | None, fence: int) -> None:
        if row is not None and row.fence > fence:
            raise fenced(sink, row.fence, fence)

    def commit(self, transaction: str, uid: str, sink: str, row: LedgerRow, ranges: Ranges) -> None:
        self._append(Record(Outcome.COMMITTED, transaction, uid, sink, row, _plain(ranges)))

    def abort(self, transaction: str) -> None:
        """Abort a transaction. Does nothing if it has written no events."""
        ranges = {}
        for partition in self._decisions.data:
            partition.refresh()
            if mine := [e for e in self._decisions.undecided(partition) if e.transaction == transaction]:
                ranges[partition.number] = range(mine[-1].base, mine[0].end)
        if ranges:
            self._append(Record(Outcome.ABORTED, transaction, ranges=_plain(ranges)))

    def abort_undecided(self, partition: Partition) -> None:
        """Abort the transactions that a dead writer left at the end of a partition. The caller holds its lock."""
        for transaction in dict.fromkeys(entry.transaction for entry in self._decisions.undecided(partition)):
            self.abort(transaction)

    def _append(self, record: Record) -> None:
        self._append_one(record)
        if self._writer.rolled:
            self._writer.rolled, self.rolled = False, True
            for (uid, sink), row in self._decisions.rows().items():
                self._append_one(Record(Outcome.RESTATED, "", uid, sink, row))

    def _append_one(self, record: Record) -> None:
        batch = pa.RecordBatch.from_arrays([[record.outcome.value], [record.transaction]], schema=SCHEMA)
        extra: dict[str, Any] = msgspec.to_builtins(record, enc_hook=plain)
        self._writer.append(batch, extra=extra, durable=True)
        self._decisions.catch_up()


def _plain(ranges: Ranges) -> dict[str, tuple[int, int]]:
    return {str(partition): (offsets.start, offsets.stop) for partition, offsets in ranges.items()}
