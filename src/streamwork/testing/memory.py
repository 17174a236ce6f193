"""A transactional sink in memory, with a ledger: replaces every sink of a job in a simulated run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streamwork.components import Event, LedgerEntry, LedgerRow, PreviewLabel, Sink, SinkKind
from streamwork.components.columns import to_structs
from streamwork.components.commit_rule import Verdict, advanced, registered, settle


class Table:
    """The rows and the ledger of a sink. They survive a crash of the job."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.ledger: LedgerRow | None = None
        self.previews: list[tuple[PreviewLabel, list[Any]]] = []
        self.over = 0  # the newest checkpoint of the registered driver that is committed or withdrawn


class MemorySink(Sink[Any]):
    kind = SinkKind.TRANSACTIONAL
    previews = True

    def __init__(self, table: Table, use_ledger: bool = True) -> None:
        """`use_ledger=False` exists for the test that proves the ledger necessary."""
        self._table = table
        self._use_ledger = use_ledger
        self._event: type[Event]

    def open(self, event: type[Event]) -> None:
        self._event = event

    def write(self, batch: pa.RecordBatch) -> None:
        self._table.rows += to_structs(self._event, batch)

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        self._table.ledger = registered(self._table.ledger, sink_id, fence)
        self._table.previews.clear()
        self._table.over = 0

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        return self._table.ledger

    def preview(self, label: PreviewLabel, batch: pa.RecordBatch) -> None:
        if label.epoch > self._table.over:
            self._table.previews.append((label, to_structs(self._event, batch)))

    def withdraw(self, uid: str, sink_id: str, epoch: int) -> None:
        self._table.over = max(self._table.over, epoch)
        self._table.previews = [(label, rows) for label, rows in self._table.previews if label.epoch > epoch]

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        rows = [event for batch in staged for event in to_structs(self._event, batch)]
        if not self._use_ledger:
            self._table.rows += rows
            return
        verdict = settle(self._table.ledger, entry)
        if verdict is Verdict.APPLY:
            self._table.rows += rows
        self._table.ledger = advanced(self._table.ledger, entry, verdict)
        self.withdraw(entry.uid, entry.sink, entry.epoch)
