"""The embedded event log as a source and as a sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from streamwork.components import (
    Event,
    LedgerEntry,
    LedgerRow,
    Located,
    OffsetSource,
    Partitioning,
    ReadProgress,
    Sink,
    SinkKind,
    Slice,
    Start,
)
from streamwork.components.columns import Columns
from streamwork.components.commit_rule import Verdict, settle
from streamwork.components.field_types import Misfit
from streamwork.components.keys import GROUPS
from streamwork.components.schema import check_columns, fields_of
from streamwork.components.source import Offsets
from streamwork.connectors.checked import checked_slice
from streamwork.connectors.pieces import gathered
from streamwork.log import EventLog, Isolation, LogReader, Policy
from streamwork.log.partition import Chunk
from streamwork.log.settings import FILE as SETTINGS
from streamwork.log.settings import Settings
from streamwork.world import RealDisk

E = TypeVar("E", bound=Event)
LOCK_SECONDS = 30.0
BAD_ROWS = 'skip such rows with on_error="dead-letter" or "drop", or copy the log without them'


class LogSource(Located, OffsetSource[E], Generic[E]):
    """The events of a log. Its partitions and offsets are those of the log.

    `isolation="read-committed"` (the default) reads committed events; "read-uncommitted" also those of open transactions, which
    may be aborted. The job is registered as a consumer of the log, so that retention keeps the events that it needs.
    `bounded=True` declares the log complete: the job ends at its end. `subset=True`: the class may leave out fields of the log,
    whose columns are then not read.
    """

    unit = "events"

    def __init__(
        self,
        path: str | Path,
        event: type[E],
        isolation: Isolation | str = Isolation.READ_COMMITTED,
        max_events: int = 1_000_000,
        start: Start = "stored",
        bounded: bool = False,
        subset: bool = False,
    ) -> None:
        fields_of(event)
        self.event = event
        self.max_events = max_events
        self.start = start
        self.bounded = bounded
        self.path = Path(path)
        self._isolation = isolation
        self._subset = subset
        self._open: LogReader[E] | None = None
        self._seen: dict[str, int] = {}  # the ends of the log that `ends` found

    @property
    def _reader(self) -> LogReader[E]:
        if self._open is None:
            self._open = LogReader(self.path, self.event, isolation=self._isolation, subset=self._subset)
        return self._open

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}  # each process opens the log itself

    def partitions(self) -> list[str]:
        return [str(number) for number in self._reader.partitions()]

    def earliest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        return {partition: self._reader.start(int(partition)) for partition in partitions}

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        self._seen = {str(number): end for number, end in self._reader.ends().items()}
        return {part: max(start, min(start + limit, self._seen[part])) for part, start in starts.items()}

    def has_more(self, ends: Mapping[str, int]) -> bool:
        return any(end < self._seen.get(partition, 0) for partition, end in ends.items())

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        places = _Places(self._reader.read_chunks(int(partition), start, end))
        for batch in gathered(places.batches()):
            offsets = places.take(batch.num_rows)
            events = Columns.of(self.event, batch)
            try:
                if isinstance(events, Columns):
                    check_columns(self.event, events.batch)
                yield Slice(events, offsets)
            except Misfit:  # an older version appended values without a range check
                where = f"a row of partition {partition} of {self.path}, between offsets {start:,} and {end:,}"
                yield checked_slice(self.event, batch, self.on_error, lambda row: where, BAD_ROWS, offsets)  # noqa: B023

    def mark(self, partition: str, end: int) -> str | None:
        settings = self._reader.settings
        return settings.id or settings.crc32  # logs of an older version have no id

    def recognises(self, partition: str, mark: str) -> bool:
        """Compare the id of the log. It is read each time: the log may have been removed and created again."""
        now = Settings.read(RealDisk(), self.path)
        return mark in (now.id, now.crc32)

    def sync(self) -> None:
        self._reader.sync()

    def keep(self, progress: ReadProgress) -> None:
        needed, completed = (
            {int(partition): offset for partition, offset in offsets.items()}
            for offsets in (progress.needed, progress.completed)
        )
        self._reader.consumers.keep(progress.uid, needed, progress.source, completed, progress.job)

    def at_time(self, partitions: Sequence[str], time: datetime) -> Mapping[str, int]:
        return {partition: self._reader.offset_at(int(partition), time) for partition in partitions}

    def forget(self, uid: str) -> None:
        self._reader.consumers.forget(uid)

    def partitioning(self) -> Partitioning | None:
        settings = self._reader.settings
        return Partitioning(settings.key, settings.groups, settings.partitions) if settings.key else None


class _Places:
    """The offsets of rows that are read from chunks and merged into larger batches. Aborted transactions leave holes."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._read: deque[range] = deque()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks:
            self._read.append(range(chunk.offset, chunk.end))
            yield chunk.batch

    def take(self, rows: int) -> Offsets:
        """The offsets of the next rows."""
        found: list[range] = []
        while rows:
            next_rows = self._read.popleft()
            if len(next_rows) > rows:
                self._read.appendleft(next_rows[rows:])
            found.append(next_rows[:rows])
            rows -= len(found[-1])
        if all(before.stop == after.start for before, after in pairwise(found)):
            return found[0].start if found else 0
        return np.concatenate([np.arange(one.start, one.stop) for one in found])


class LogSink(Located, Sink[E], Generic[E]):
    """Appends to a log, which it creates: one transaction per checkpoint, over all partitions, which includes the ledger row.

    Read-committed readers see the events of a checkpoint atomically, when it is committed.

    A log has one writer per partition, so instances that write immediately (`write`) wait for each other: each releases its
    locks after every write, which also makes the events durable.
    """

    kind = SinkKind.TRANSACTIONAL

    def __init__(self, path: str | Path, key: str | tuple[str, ...] | None = None, partitions: int = 1) -> None:
        self.path = Path(path)
        self._key = key
        self._partitions = partitions
        self._log: EventLog[E]

    def check(self, event: type[E]) -> None:
        Settings.of(event, self._key, self._partitions, GROUPS, Policy())

    def open(self, event: type[E]) -> None:
        self.close()
        self._log = EventLog.create(
            self.path,
            event,
            key=self._key,
            partitions=self._partitions,
            exist_ok=True,
            lock_timeout=LOCK_SECONDS,
        )

    def with_target(self, target: str) -> LogSink[E]:
        """FOLDER"""
        return type(self)(target, self._key, self._partitions)

    def used(self) -> str:
        if not (self.path / SETTINGS).exists():
            return ""
        with LogReader[E](self.path) as log:
            return f"log {self.path} holds events" if any(log.ends().values()) else ""

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            self._log.append(batch)
        finally:
            self._log.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_log"}  # each process opens it itself

    def register(self, uid: str, sink_id: str, fence: int) -> None:
        self._log.register(uid, sink_id, fence)

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        if hasattr(self, "_log"):
            return self._log.ledger(uid, sink_id)
        if not (self.path / SETTINGS).exists():
            return None
        with LogReader[E](self.path) as log:
            return log.ledger(uid, sink_id)

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        with self._log.transaction(entry.uid, entry.sink, entry.fence) as transaction:
            row = transaction.ledger
            verdict = settle(row, entry)
            if verdict is Verdict.APPLY:
                for batch in gathered(staged):
                    transaction.append(batch)
                transaction.commit(LedgerRow(entry.fence, entry.end, entry.manifest_sha256))
            elif verdict is Verdict.ADOPT:
                assert row is not None
                transaction.commit(LedgerRow(entry.fence, row.position, entry.manifest_sha256))

    def close(self) -> None:
        if hasattr(self, "_log"):
            self._log.close()
