"""One transaction, as its writer uses it. The protocol is described in `transactions`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from streamwork.components import LedgerRow
from streamwork.errors import StreamworkError, WrongUse
from streamwork.log.decisions import Ranges
from streamwork.log.transactions import Transactions


class Stage(Enum):
    """OPEN -> COMMITTED | ABORTED | UNKNOWN. The next writer resolves UNKNOWN by reading the decisions."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transaction:
    """Created by `EventLog.transaction`. Read-committed readers do not see its events before the commit."""

    def __init__(
        self,
        name: str,
        uid: str,
        sink: str,
        ledger: LedgerRow | None,
        write: Callable[[Any, str], Ranges],
        sync: Callable[[], None],
        decide: Transactions,
    ) -> None:
        self.name = name
        self.ledger = ledger
        """The current ledger row. It cannot change while this transaction is open."""
        self.stage = Stage.OPEN
        self.ranges: Ranges = {}
        self._uid = uid
        self._sink = sink
        self._write = write
        self._sync = sync
        self._decide = decide

    def append(self, events: Any) -> Ranges:
        """Append one event, several, or a record batch. Returns their offsets, per partition."""
        self._must_be_open()
        written = self._write(events, self.name)  # 2
        for partition, offsets in written.items():
            first = self.ranges.get(partition, offsets).start
            self.ranges[partition] = range(first, offsets.stop)
        return written

    def commit(self, row: LedgerRow) -> None:
        """Atomically make the events visible and `row` the ledger row."""
        self._must_be_open()
        Transactions.check_fence(self._sink, self.ledger, row.fence)
        self._sync()  # 3
        # An interrupt from here on leaves the outcome unknown: the transaction must not be aborted.
        self.stage = Stage.UNKNOWN
        try:
            self._decide.commit(self.name, self._uid, self._sink, row, self.ranges)  # 4
        except StreamworkError as error:
            if error.code == "SW-LOG-FULL":  # the decision was not written
                self.stage = Stage.OPEN
            raise
        self.stage = Stage.COMMITTED

    def abort(self) -> None:
        """Abort the transaction. Does nothing if it is already decided."""
        if self.stage is Stage.OPEN:
            self.stage = Stage.UNKNOWN
            if self._decide.is_open:
                self._decide.abort(self.name)
                self.stage = Stage.ABORTED

    def _must_be_open(self) -> None:
        if self.stage is not Stage.OPEN:
            raise WrongUse("SW-LOG-TRANSACTION", f"the transaction is {self.stage.value}", "begin another transaction")
