"""`Capture`: a sink that keeps the rows that a job would write, in a file of a scratch folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event, LedgerEntry, LedgerRow, Observer, Sink, SinkKind
from streamwork.components.batches import compacted, take
from streamwork.components.commit_rule import Verdict, advanced, registered, settle
from streamwork.components.schema import arrow_schema

GONE = "__gone"


class Capture(Sink[Any]):
    """Stands in for a sink, or for `print()`. It is never pickled: rows are committed by the driver, in this process."""

    kind = SinkKind.TRANSACTIONAL

    def __init__(self, sink: Sink[Any] | Observer, event: type[Event], path: Path) -> None:
        self.key = sink.newest_by() if isinstance(sink, Sink) else ()
        self._sink = sink
        self._row: LedgerRow | None = None
        self._path = path
        self._schema = arrow_schema(event).append(pa.field(GONE, pa.bool_()))
        self._writer: Any = None
        if isinstance(sink, Sink):
            sink.check(event)

    def open(self, event: type[Event]) -> None:
        """The file is made with the first rows."""

    def write(self, batch: pa.RecordBatch) -> None:
        raise NotImplementedError

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        self._row = registered(self._row, sink_id, fence)

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        return self._row

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        verdict = settle(self._row, entry)
        if verdict is Verdict.APPLY:
            for batch in staged:
                self._add(batch)
        self._row = advanced(self._row, entry, verdict)

    def _add(self, batch: pa.RecordBatch) -> None:
        gone = self._sink.removes(batch) if isinstance(self._sink, Sink) else None
        if gone is None:
            gone = pa.array(np.zeros(batch.num_rows, bool))
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._path, self._schema)
        self._writer.write_batch(pa.RecordBatch.from_arrays([*batch.columns, gone], schema=self._schema))

    def rows(self) -> pa.Table:
        """What the target holds: with a key, the last row of each, without those that were removed; else every row."""
        if self._writer is None:
            return self._schema.empty_table().drop_columns([GONE])
        self._writer.close()
        with pa.memory_map(str(self._path)) as file:
            table = pa.ipc.open_stream(file).read_all()
        if self.key:
            table = _last(compacted(table), self.key)
            table = table.filter(pa.array(~np.asarray(table.column(GONE))))
        return table.drop_columns([GONE])


def _last(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The last row of each key."""
    numbered = table.select(list(key)).append_column("__row", pa.array(np.arange(table.num_rows)))
    found = numbered.group_by(list(key), use_threads=False).aggregate([("__row", "max")])
    return take(table, np.sort(np.asarray(found.column("__row_max"))))
