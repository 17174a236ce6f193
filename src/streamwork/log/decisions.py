"""The outcome of each transaction, and the ledger rows, as read from ``LOG/transactions/``.

The module `transactions` describes how they are written and why this is safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import takewhile

import msgspec
import pyarrow as pa

from streamwork.components import LedgerRow
from streamwork.components.position import from_plain
from streamwork.errors import Refused, StreamworkError
from streamwork.log.entry import Entry
from streamwork.log.frame import FrameInfo
from streamwork.log.partition import Partition

FOLDER = "transactions"
SCHEMA = pa.schema(
    [pa.field("outcome", pa.string(), nullable=False), pa.field("transaction", pa.string(), nullable=False)]
)
LedgerKey = tuple[str, str]
Ranges = dict[int, range]


class Outcome(Enum):
    REGISTERED = "registered"  # a driver with a new fence
    COMMITTED = "committed"
    ABORTED = "aborted"
    RESTATED = "restated"  # a copy of an older ledger row


class Decision(msgspec.Struct, frozen=True):
    outcome: Outcome
    ends: dict[int, int]  # partition -> offset after the transaction's last event


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of one batch in ``LOG/transactions/``."""

    outcome: Outcome
    transaction: str = ""
    uid: str = ""
    sink: str = ""
    ledger: LedgerRow | None = None
    ranges: dict[str, tuple[int, int]] = {}


class Decisions:
    """The decisions and ledger rows as of the last `refresh`."""

    def __init__(self, partition: Partition, data: Sequence[Partition]) -> None:
        self.partition = partition
        self.data = data
        self._read = 0
        self._many = 10_000
        self._decisions: dict[str, Decision] = {}
        self._rows: dict[LedgerKey, tuple[LedgerRow, int]] = {}  # with the offset of the record

    def refresh(self) -> None:
        """Read the decisions that were appended since the last refresh."""
        self.partition.refresh()
        try:
            self.catch_up()
        except StreamworkError as error:
            if error.code != "SW-LOG-GONE":
                raise
            # Retention has removed records that were not read yet. Ledger rows in them were restated later.
            self._read = self.partition.start
            self.catch_up()
        if len(self._decisions) > self._many:
            self._forget_gone()

    def catch_up(self) -> None:
        for info in self.partition.infos(self._read, self.partition.end):
            self._take(info)
            self._read = info.base + 1

    def _take(self, info: FrameInfo) -> None:
        record = self._record(info)
        if record.transaction:
            ends = {int(partition): end for partition, (_, end) in record.ranges.items()}
            self._decisions[record.transaction] = Decision(record.outcome, ends)
        if record.ledger is not None:
            self._rows[record.uid, record.sink] = (record.ledger, info.base)

    def _record(self, info: FrameInfo) -> Record:
        try:
            return msgspec.convert(info.extra, Record, dec_hook=from_plain)
        except msgspec.ValidationError as error:
            raise Refused(
                "SW-LOG-DAMAGED",
                f"{self.partition.folder}, offset {info.base:,}: not a record of a transaction: {error}",
                "restore the folder from a backup, or read it with the version of Streamwork that wrote it",
            ) from None

    def outcome(self, transaction: str) -> Outcome | None:
        """The outcome of a transaction; None if it is undecided as of the last refresh."""
        decision = self._decisions.get(transaction)
        return None if decision is None else decision.outcome

    def row(self, uid: str, sink: str) -> LedgerRow | None:
        found = self._rows.get((uid, sink))
        return None if found is None else found[0]

    def rows(self) -> dict[LedgerKey, LedgerRow]:
        return {key: row for key, (row, _) in self._rows.items()}

    def stable_end(self, partition: Partition) -> int:
        """The offset below which every event is decided. Raises SW-LOG-DAMAGED if damage makes it unknown."""
        undecided = self.undecided(partition)
        if not undecided:
            return partition.end
        self.partition.check_end()
        return undecided[-1].base

    def undecided(self, partition: Partition) -> list[Entry]:
        """The undecided batches, newest first. They are always at the end of a partition."""
        return list(
            takewhile(lambda e: e.transaction != "" and self.outcome(e.transaction) is None, partition.backwards())
        )

    def is_needed(self, base: int, end: int, starts: Mapping[int, int]) -> bool:
        """True if the records from `base` to `end` hold a current ledger row, or decide events that still exist.

        `starts`: partition -> lowest offset that it still holds.
        """
        if any(base <= offset < end for _, offset in self._rows.values()):
            return True
        for info in self.partition.infos(base, end):
            if any(stop > starts.get(int(p), 0) for p, (_, stop) in self._record(info).ranges.items()):
                return True
        return False

    def _forget_gone(self) -> None:
        """Drop decisions about removed events, so that memory use stays bounded."""
        starts = {partition.number: partition.start for partition in self.data}
        for name, decision in list(self._decisions.items()):
            if all(end <= starts.get(p, 0) for p, end in decision.ends.items()):
                del self._decisions[name]
        self._many = max(10_000, 2 * len(self._decisions))
