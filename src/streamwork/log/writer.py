"""The one writer of a partition.

An append:
    1  rolls the segment if it is large or old enough, or has another schema: sync, index, close, and begin a new file;
    2  writes the batch with one call, after the last complete one. If that fails, it truncates the file to its old length,
       and the next append may succeed;
    3  syncs, with fsync="always". If that fails, the content of the disk is unknown: the writer closes, and the next
       one verifies the file;
    4  returns the offsets: the append is acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from threading import RLock
from typing import Any

import pyarrow as pa

from streamwork.errors import JobFailed
from streamwork.log.entry import Entry
from streamwork.log.frame import FrameEncoder, FrameTags
from streamwork.log.lock import Lock, Locks
from streamwork.log.modes import Fsync
from streamwork.log.partition import Partition
from streamwork.log.policy import Policy, must_roll
from streamwork.log.recovery import Recovery, recover
from streamwork.log.schemas import Version
from streamwork.log.segment import Segment, segment_path
from streamwork.world import Clock, Disk, DiskFile

_FULL = {errno.ENOSPC, errno.EDQUOT}


class Writer:
    """Appends to one partition. Takes the lock on first use and keeps it until `close`."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        locks: Locks,
        partition: Partition,
        encoder: FrameEncoder,
        policy: Policy,
        fsync: Fsync,
        sync_every: float,
    ) -> None:
        self.partition = partition
        self.recovered: list[Recovery] = []
        self.rolled = False  # True after a roll, until the caller has run retention
        self._disk = disk
        self._clock = clock
        self._locks = locks
        self._encoder = encoder
        self._policy = policy
        self._fsync = fsync
        self._sync_every = sync_every
        self._lock: Lock | None = None
        self._file: DiskFile | None = None
        self._synced = 0  # offset
        self._synced_at = 0.0
        self._left: tuple[int, int] | None = None  # base and size of the active segment when this writer closed it
        self._mutex = RLock()

    @property
    def is_open(self) -> bool:
        return self._lock is not None and self._lock.held

    def open(self, timeout: float) -> None:
        """Take the lock and make sure that the partition ends with a complete batch. Raises SW-LOG-LOCKED."""
        with self._mutex:
            if self.is_open:
                return
            self._lock, self._file = self._locks.acquire(self.partition.folder, timeout), None
            try:
                self.partition.refresh()
                if self._left is None or self._left != self._state():
                    self._verify()
                self._left = None
            except BaseException:
                self._abandon()
                raise

    def _state(self) -> tuple[int, int]:
        if not self.partition.bases:
            return (0, -1)
        return self.partition.bases[-1], self._disk.size(self.partition.active.path)

    def _verify(self) -> None:
        """Recover the partition: another writer may have written to it and crashed."""
        self._disk.remove_abandoned(self.partition.folder)
        self.partition.forget()
        self.partition.refresh()
        if self.partition.bases:
            file = self._open_file()
            if (report := recover(self._disk, self.partition, file)) is not None:
                self.recovered.append(report)
            file.sync()  # the last writer may not have synced; later appends rely on these events
        self._synced, self._synced_at = self.partition.end, self._clock.monotonic()

    def append(
        self, batch: pa.RecordBatch, transaction: str = "", extra: dict[str, Any] | None = None, durable: bool = False
    ) -> range:
        """Append a batch of at least one event. Returns its offsets. `durable` syncs in every mode."""
        with self._mutex:
            partition, now = self.partition, self._clock.now()
            if self._must_roll(batch, now):
                self._roll()  # 1
            last = next(partition.backwards(), None)
            base = partition.end
            # The system clock may be set back. Append times in a partition never decrease, so that they can be searched.
            time = max(int(now * 1_000_000), last.time if last else 0)
            tags = FrameTags(base, batch.num_rows, time, self._synced, transaction, extra or {})
            position, size = self._write(self._encoder.encode(batch, tags), base)  # 2
            partition.active.note(Entry(base, batch.num_rows, position, size, time, tags.synced, transaction))
            if durable or self._sync_is_due():
                self.sync()  # 3
            return range(base, base + batch.num_rows)  # 4

    def _sync_is_due(self) -> bool:
        if self._fsync is Fsync.INTERVAL:
            return self._clock.monotonic() - self._synced_at >= self._sync_every
        return self._fsync is Fsync.ALWAYS

    def _must_roll(self, batch: pa.RecordBatch, now: float) -> bool:
        if not self.partition.bases:
            return False
        active = self.partition.active
        if active.entries and not self._is_mine(active):
            return True  # a segment has one schema
        first = active.entries[0].time / 1_000_000 if active.entries else None
        at_most = batch.get_total_buffer_size()  # which is found out faster than the size of the rows alone
        return must_roll(self._policy, active.scanned, first, at_most, now) and must_roll(
            self._policy, active.scanned, first, int(batch.nbytes), now
        )

    def _is_mine(self, segment: Segment) -> bool:
        """True if it has the schema of the appended batches."""
        return bool(segment.version.schema.equals(self._encoder.schema))

    def _write(self, frame: memoryview, base: int) -> tuple[int, int]:
        try:
            file = self._open_file(base)
        except OSError as error:
            raise self._failed(error, segment_path(self.partition.folder, base)) from error
        active = self.partition.active
        good = active.scanned
        try:
            if good == 0 or not (active.entries or self._is_mine(active)):
                file.truncate(0)  # the file may hold a torn schema
                active.begins_with(Version(self._encoder.schema, self._encoder.prologue))
                file.write(self._encoder.prologue + bytes(frame))
                good = len(self._encoder.prologue)
            else:
                file.write(frame)
        except OSError as error:
            self._cut_back(file, active.scanned)
            raise self._failed(error, active.path) from error
        return good, len(frame)

    def _cut_back(self, file: DiskFile, size: int) -> None:
        try:
            file.truncate(size)
        except OSError:
            self._abandon()  # the next writer truncates it

    def _open_file(self, base: int = 0) -> DiskFile:
        if self._file is None:
            if not self.partition.bases:
                self._file = self._disk.open_append(segment_path(self.partition.folder, base))
                self.partition.add_segment(base)
            else:
                self._file = self._disk.open_append(self.partition.active.path)
        return self._file

    def _roll(self) -> None:
        active = self.partition.active
        self.sync()
        active.write_index()
        self._close_file()
        base = active.end
        path = segment_path(self.partition.folder, base)
        try:
            self._file = self._disk.open_append(path)
        except OSError as error:
            raise self._failed(error, path) from error
        self.partition.add_segment(base)
        self.rolled = True

    def sync(self) -> None:
        """Make everything that was appended durable."""
        with self._mutex:
            if self._file is None or self._synced == self.partition.end:
                return
            try:
                self._file.sync()
            except OSError as error:
                path = self.partition.active.path
                self._abandon()
                raise self._failed(error, path) from error
            self._synced, self._synced_at = self.partition.end, self._clock.monotonic()

    def sync_behind(self) -> None:
        """Like `sync`, from another thread, without blocking appends."""
        with self._mutex:
            if self._file is None or self._synced == self.partition.end:
                return
            path, end = self.partition.active.path, self.partition.end
        try:
            self._disk.sync(path)
        except OSError as error:
            with self._mutex:
                self._abandon()
            raise self._failed(error, path) from error
        with self._mutex:
            self._synced, self._synced_at = max(self._synced, end), self._clock.monotonic()

    def close(self) -> None:
        """Sync (unless fsync="never"), write the index, and release the lock."""
        with self._mutex:
            if not self.is_open:
                return
            try:
                if self._fsync is not Fsync.NEVER:
                    self.sync()
                self._left = self._state()
                if self._file is not None and self._synced == self.partition.end:
                    self.partition.active.write_index()
            finally:
                self._abandon()

    def release(self) -> None:
        """Release the lock without sync and index, for a process that will soon take it again."""
        with self._mutex:
            if self.is_open:
                self._left = self._state()
                self._abandon()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._close_file()
        self._file = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _failed(self, error: OSError, path: Path) -> JobFailed:
        if error.errno in _FULL:
            return JobFailed(
                "SW-LOG-FULL",
                f"the disk is full: the events were not appended to {path}; earlier events are intact",
                "free disk space, then append them again; `streamwork log info LOG` shows which consumers hold back retention",
            )
        return JobFailed(
            "SW-LOG-IO",
            f"cannot write {path}: {error}; the events may or may not be in the log",
            "check the disk, then read the end of the log before appending again",
        )
