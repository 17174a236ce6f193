"""`EventLog`, the public class of the log: append, seek, pull, tail, transactions."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import RLock, Timer
from typing import Any

from streamwork.components import Event
from streamwork.components.columns import to_structs
from streamwork.components.keys import GROUPS
from streamwork.components.schema import arrow_schema
from streamwork.errors import Refused, StreamworkError, WrongUse
from streamwork.log.consumers import FOLDER as CONSUMERS
from streamwork.log.cursor import Cursor, Where
from streamwork.log.decisions import FOLDER, SCHEMA, Ranges
from streamwork.log.frame import FrameEncoder
from streamwork.log.incoming import in_pieces, to_record_batches
from streamwork.log.lock import FileLocks, Locks
from streamwork.log.modes import Fsync, Isolation, check_name, choose
from streamwork.log.partition import Partition
from streamwork.log.partitioner import Partitioner
from streamwork.log.policy import Policy
from streamwork.log.reader import E, LogReader
from streamwork.log.recovery import QUARANTINE, Recovery
from streamwork.log.retention import retain, retain_decisions
from streamwork.log.schemas import FOLDER as SCHEMAS
from streamwork.log.settings import FILE, Settings
from streamwork.log.transaction import Transaction
from streamwork.log.transactions import Transactions
from streamwork.log.views import Views
from streamwork.log.writer import Writer
from streamwork.wording import plural
from streamwork.world import Clock, Disk, RealDisk

_log = logging.getLogger(__name__)
_CONTROL = Policy(segment_bytes=4 << 20)
_SHARED = (CONSUMERS, SCHEMAS, QUARANTINE)  # folders that belong to no partition


class EventLog(LogReader[E]):
    """An existing log, for reading and appending.

    The first append to a partition takes its lock and keeps it until `close`: one writer per partition. Any thread
    may append while one other thread reads.
    `fsync` decides what a power failure can lose: see `Fsync`. `verify=False` exists for the test that proves the CRC necessary.
    """

    def __init__(
        self,
        path: str | Path,
        event: type[E] | None = None,
        *,
        isolation: Isolation | str = Isolation.READ_COMMITTED,
        fsync: Fsync | str = Fsync.INTERVAL,
        sync_every: float = 1.0,
        lock_timeout: float = 1.0,
        disk: Disk | None = None,
        clock: Clock | None = None,
        locks: Locks | None = None,
        token: Callable[[], str] = lambda: secrets.token_hex(8),
        verify: bool = True,
    ) -> None:
        super().__init__(path, event, isolation=isolation, disk=disk, clock=clock, verify=verify)
        self._fsync = choose(Fsync, fsync, "fsync")
        self._sync_every = sync_every
        self._lock_timeout = lock_timeout
        self._locks = locks or FileLocks(self._clock)
        self._token = token
        for folder in (self.path, *(self.path / name for name in _SHARED)):
            self._disk.remove_abandoned(folder)
        settings = self.settings
        self._partitioner = Partitioner(self.event, settings.key, settings.partitions, settings.groups)
        # With an injected clock no timer thread runs: appends do the syncs that are due.
        self._threads = clock is None
        inline = float("inf") if self._threads else sync_every
        views = Views(self._disk, self.path, settings, verify)
        self._schemas, encoder = views.schemas, FrameEncoder(self.schema)
        self._is_known = not self.is_typed  # True if the log has the schema of the class, which may have further fields
        world = (self._disk, self._clock, self._locks)
        self._writers = [
            Writer(*world, partition, encoder, settings.policy, self._fsync, inline) for partition in views.partitions
        ]
        self._decisions = views.decisions
        self._control = Writer(*world, views.decisions.partition, FrameEncoder(SCHEMA), _CONTROL, Fsync.ALWAYS, inline)
        self._transactions = Transactions(views.decisions, self._control)
        self._open_transaction: Transaction | None = None
        self._cursor: Cursor | None = None
        self._mutex = RLock()
        self._timer: Timer | None = None

    @classmethod
    def create(
        cls,
        path: str | Path,
        event: type[E],
        *,
        key: str | tuple[str, ...] | None = None,
        partitions: int = 1,
        groups: int = GROUPS,
        policy: Policy | None = None,
        exist_ok: bool = False,
        disk: Disk | None = None,
        **options: Any,
    ) -> EventLog[E]:
        """Create a log and open it. `options` are those of `EventLog`.

        With `exist_ok` an existing log is opened if it has the same event, key, partitions and groups.
        """
        path, disk = Path(path), disk or RealDisk()
        settings = Settings.of(event, key, partitions, groups, policy or Policy(), secrets.token_hex(16))
        try:
            if disk.exists(path / FILE):
                raise FileExistsError
            for folder in [*map(str, range(partitions)), FOLDER]:
                disk.make_folder(path / folder)
            disk.create(path / FILE, settings.encode())  # last: this file makes the folder a log
        except FileExistsError:
            found = Settings.read(disk, path)
            same = (found.key, found.partitions, found.groups) == (settings.key, partitions, groups)
            if not (exist_ok and same):
                raise Refused(
                    "SW-LOG-EXISTS",
                    f"{path} already holds a log: {found.event}, key {', '.join(found.key) or 'none'}, "
                    f"{plural(found.partitions, 'partition')}, {found.groups} groups",
                    "open it with EventLog(...), or choose another path",
                ) from None
        return cls(path, event, disk=disk, **options)

    # Reading, with the cursor of this object.

    @property
    def positions(self) -> dict[int, int]:
        """Partition -> offset of the next event that `pull` returns."""
        return dict(self._place.positions)

    def seek(self, where: Where, partition: int | None = None) -> None:
        """Set the position of `pull`: see `Cursor.seek`. A new object is at the start."""
        self._place.seek(where, partition)

    def pull(self, max_events: int = 1000, timeout: float = 0.0) -> list[E]:
        """The next events, at most `max_events`; empty if none arrived within `timeout` seconds."""
        return [e for chunk in self._place.pull(max_events, timeout) for e in to_structs(self.event, chunk.batch)]

    @property
    def _place(self) -> Cursor:
        if self._cursor is None:
            self._cursor = self.cursor("start")
        return self._cursor

    # Writing.

    def append(self, events: Any) -> Ranges:
        """Append one event, a list of events, or an Arrow record batch. Returns their offsets, per partition.

        When it returns, the events are acknowledged. When it raises SW-LOG-FULL or SW-LOG-IO, the events of some partitions
        may have been appended and those of others not. Use a transaction to append all or nothing.
        """
        with self._mutex:
            if self._open_transaction is not None:
                raise WrongUse(
                    "SW-LOG-TRANSACTION", "a transaction is open", "append with the transaction, or after it has ended"
                )
            return self._append(events, "")

    def _append(self, events: Any, transaction: str) -> Ranges:
        batches = to_record_batches(self._class_of(events), self.schema, events, f"log {self.path}")
        if not self._is_known:
            self._schemas.add(self.event)
            self._is_known = True
        offsets: Ranges = {}
        for number, part in (part for batch in batches if batch.num_rows for part in self._partitioner.split(batch)):
            writer = self._writers[number]
            self._open(writer, finish_earlier=not transaction)
            for piece in in_pieces(part):
                written = writer.append(piece, transaction)
                offsets[number] = range(offsets.get(number, written).start, written.stop)
        if not transaction:
            self._retain_rolled()
        if self._fsync is Fsync.INTERVAL:
            self._sync_later()
        return offsets

    def _class_of(self, events: Any) -> type[Event]:
        """The class of the events to append. A log that was opened without a class takes any class with its schema."""
        first = next(iter(events), None) if isinstance(events, Sequence) else events
        if self.is_typed or not isinstance(first, Event) or type(first) is self.event:
            return self.event
        given = type(first)
        if self._schemas.check(given) and arrow_schema(given).equals(self.schema):
            return given
        raise WrongUse(
            "SW-LOG-SCHEMA",
            f"the log {self.path} was opened without a class, and {given.__name__} does not have exactly its fields",
            f"open it with the class: EventLog({str(self.path)!r}, {given.__name__})",
        )

    def _open(self, writer: Writer, finish_earlier: bool = True) -> None:
        writer.open(self._lock_timeout)
        if finish_earlier and self._decisions.undecided(writer.partition):
            self._transactions.open(self._lock_timeout)
            try:
                self._transactions.abort_undecided(writer.partition)
            finally:
                self._transactions.release()

    @contextlib.contextmanager
    def transaction(self, uid: str, sink: str, fence: int) -> Iterator[Transaction]:
        """Append to several partitions and change the ledger row atomically: see `transactions`.

        Holds all locks until the block ends. A block that ends without `commit` changes nothing.
        """
        check_name(uid, "uid"), check_name(sink, "sink")
        with self._mutex, self._all_locks():  # 1, 5
            self._transactions.check_owner(uid)
            row = self._decisions.row(uid, sink)
            Transactions.check_fence(sink, row, fence)
            begun = Transaction(self._token(), uid, sink, row, self._append, self._sync_data, self._transactions)
            self._open_transaction = begun
            try:
                yield begun
            finally:
                self._open_transaction = None
                with contextlib.suppress(StreamworkError):  # the next writer aborts it then
                    begun.abort()
                self._retain_rolled()  # after the transaction: retention must not remove what it is writing

    def register(self, uid: str, sink: str, fence: int) -> None:
        """Write a driver's fence into its ledger row. When this returns, older drivers have no transaction in flight.

        Refuses a fence below the registered one (SW-SINK-FENCED), and a log that another job writes to (SW-SINK-OWNED).
        """
        check_name(uid, "uid"), check_name(sink, "sink")
        with self._mutex, self._all_locks():
            self._transactions.register(uid, sink, fence)

    @contextlib.contextmanager
    def _all_locks(self) -> Iterator[None]:
        if self._open_transaction is not None:
            raise WrongUse("SW-LOG-TRANSACTION", "a transaction is open", "end the transaction first")
        kept = [writer for writer in self._writers if writer.is_open]
        try:
            for writer in self._writers:
                self._open(writer)
            self._transactions.open(self._lock_timeout)
            yield
        finally:
            self._transactions.release()
            for writer in self._writers:
                if writer not in kept:
                    writer.release()

    def _sync_data(self) -> None:
        for writer in self._writers:
            writer.sync()

    # Maintenance.

    @property
    def recovered(self) -> list[Recovery]:
        """The torn tails that this object has truncated, one report each."""
        return [report for writer in [*self._writers, self._control] for report in writer.recovered]

    def retain(self) -> None:
        """Remove the segments that the policy does not keep and no consumer needs. Runs automatically when a segment rolls."""
        with self._mutex, self._all_locks():
            for writer in self._writers:
                self._retain(writer.partition)
            retain_decisions(self._disk, self._decisions)

    def _retain_rolled(self) -> None:
        for writer in self._writers:
            if writer.rolled:
                writer.rolled = False
                self._retain(writer.partition)
        if self._transactions.rolled and self._transactions.is_open:
            self._transactions.rolled = False
            retain_decisions(self._disk, self._decisions)

    def _retain(self, partition: Partition) -> None:
        try:
            needed = self.consumers.needed(partition.number)
            retain(self._disk, partition, self.settings.policy, needed, self._clock.now())
        except (StreamworkError, OSError) as error:  # a failed retention does not fail the append
            _log.warning("retention of %s: %s", partition.folder, error)

    def sync(self) -> None:
        with self._mutex:
            self._sync_data()
        super().sync()

    def _sync_later(self) -> None:
        """Start a timer that syncs, in case no further append does."""
        if self._threads and self._timer is None:
            self._timer = Timer(self._sync_every, self._sync_now)
            self._timer.daemon = True
            self._timer.start()

    def _sync_now(self) -> None:
        self._timer = None
        try:
            for writer in self._writers:
                writer.sync_behind()
        except StreamworkError as error:
            _log.error("sync of %s: %s", self.path, error)  # the writer is closed; the next append verifies the files

    def close(self) -> None:
        """Sync (unless fsync="never") and release the locks. The object can be used again."""
        with self._mutex:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for writer in [*self._writers, self._control]:
                writer.close()
