"""Reading a log, in any process, while its writers append."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components import Event, LedgerRow
from streamwork.components.columns import to_structs
from streamwork.components.defaults import Conform
from streamwork.components.schema import arrow_schema
from streamwork.errors import WrongUse
from streamwork.log.consumers import Consumers
from streamwork.log.cursor import Cursor, Where
from streamwork.log.decisions import Outcome
from streamwork.log.event_type import event_type
from streamwork.log.modes import Isolation, choose
from streamwork.log.partition import Chunk, Partition
from streamwork.log.settings import Settings
from streamwork.log.views import Views
from streamwork.world import Clock, Disk, RealClock, RealDisk

E = TypeVar("E", bound=Event)


class Located(msgspec.Struct, frozen=True):
    """An event with its partition, offset and append time."""

    partition: int
    offset: int
    time: int  # of the append, in microseconds since 1970
    event: Any


class LogReader(Generic[E]):
    """Reads an existing log. Without `event`, events have a generated type with every field of the log.

    Offsets count the events of a partition. `end` and `ends` check the files for new events; `read` reads up to the
    last such check. An object is not thread-safe; a process may have any number of objects. With `subset`, the class may leave
    out fields of the log: their columns are not decoded.
    """

    def __init__(
        self,
        path: str | Path,
        event: type[E] | None = None,
        *,
        isolation: Isolation | str = Isolation.READ_COMMITTED,
        subset: bool = False,
        disk: Disk | None = None,
        clock: Clock | None = None,
        verify: bool = True,
    ) -> None:
        self.path = Path(path)
        self.isolation = choose(Isolation, isolation, "isolation")
        self._disk = disk or RealDisk()
        self._clock = clock or RealClock()
        self.settings = Settings.read(self._disk, self.path)
        self.consumers = Consumers(self._disk, self._clock, self.path)
        self.views = Views(self._disk, self.path, self.settings, verify)
        schemas = self.views.schemas
        self.is_typed = event is not None
        if event is not None:
            schemas.check(event, subset)
            self.schema, self._conform = arrow_schema(event), Conform.to(event)
        else:
            self.schema, self._conform = schemas.whole, Conform(schemas.whole, schemas.defaults)
        self.event: type[E] = event or event_type(self.settings.event, self.schema)  # type: ignore[assignment]

    def partitions(self) -> list[int]:
        return list(range(self.settings.partitions))

    def start(self, partition: int) -> int:
        """The lowest retained offset."""
        return self.views.partition(partition).start

    def end(self, partition: int) -> int:
        """The offset after the last event visible to this reader. Raises SW-LOG-DAMAGED if damage follows it."""
        self.views.decisions.refresh()
        return self._end(self.views.partition(partition))

    def ends(self) -> dict[int, int]:
        """`end` of every partition, consistent: these ends include either all events of a transaction or none."""
        self.views.decisions.refresh()  # first: then the partitions hold all batches of every transaction known as committed
        return {partition.number: self._end(partition) for partition in self.views.partitions}

    def _end(self, partition: Partition) -> int:
        partition.refresh()
        partition.check_end()
        if self.isolation is Isolation.READ_UNCOMMITTED:
            return partition.end
        return self.views.decisions.stable_end(partition)

    def offset_at(self, partition: int, time: datetime) -> int:
        """The first offset appended at `time` or later; the end if there is none."""
        if time.tzinfo is None:
            raise WrongUse(
                "SW-LOG-SEEK", f"{time!r} has no time zone", "pass a datetime with a time zone, as datetime.now(UTC)"
            )
        end = self.end(partition)
        return min(end, self.views.partition(partition).offset_at(_microseconds(time)))

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The events from offset `start` up to, but not including, `end`, as record batches over the mapped file.

        Repeatable. Raises SW-LOG-GONE, SW-LOG-DAMAGED, and SW-LOG-AHEAD beyond the end.
        """
        for chunk in self.read_chunks(partition, start, end):
            yield chunk.batch

    def read_chunks(self, partition: int, start: int, end: int) -> Iterator[Chunk]:
        """Like `read`, with the offset and append time of each batch."""
        chosen = self.views.partition(partition)
        if max(start, end) > chosen.end or (start < end and end > self._stable_end(chosen)):
            self.end(partition)  # it may have been appended since
            if max(start, end) > chosen.end or (start < end and end > self._stable_end(chosen)):
                raise chosen.ahead(max(start, end))
        for chunk in chosen.chunks(start, end, self._is_visible):
            batch = self._conform(chunk.batch)
            yield chunk if batch is chunk.batch else msgspec.structs.replace(chunk, batch=batch)

    def _stable_end(self, partition: Partition) -> int:
        if self.isolation is Isolation.READ_UNCOMMITTED:
            return partition.end
        return self.views.decisions.stable_end(partition)

    def _is_visible(self, transaction: str) -> bool:
        if not transaction or self.isolation is Isolation.READ_UNCOMMITTED:
            return True
        return self.views.decisions.outcome(transaction) is Outcome.COMMITTED

    def cursor(self, where: Where = "start") -> Cursor:
        """A new cursor on the log."""
        return Cursor(self, self._clock, where)

    def last(self, count: int) -> list[Located]:
        """The newest `count` events, in append order."""
        return self._last(count, self.ends())

    def _last(self, count: int, ends: dict[int, int]) -> list[Located]:
        found = []
        for partition, end in ends.items():
            position, events = end, list[Located]()
            while len(events) < count and position > (start := self.start(partition)):
                lower = max(start, position - max(count, 1))
                events = [
                    e for chunk in self.read_chunks(partition, lower, position) for e in self.locate(chunk)
                ] + events
                position = lower
            found += events
        found.sort(key=lambda one: (one.time, one.partition, one.offset))
        return found[-count:] if count else []

    def tail(self, last: int = 0, stop: Callable[[], bool] = lambda: False) -> Iterator[E]:
        """The newest `last` events, then each new event as it is appended, until `stop` returns True."""
        for one in self.tail_located(last, stop):
            yield one.event

    def tail_located(self, last: int = 0, stop: Callable[[], bool] = lambda: False) -> Iterator[Located]:
        """Like `tail`, with the partition, offset and append time of each event."""
        cursor = self.cursor("end")
        yield from self._last(last, cursor.positions)
        for chunks in cursor.follow(10_000, stop):
            for chunk in chunks:
                yield from self.locate(chunk)

    def locate(self, chunk: Chunk) -> list[Located]:
        events = to_structs(self.event, chunk.batch)
        return [Located(chunk.partition, offset, chunk.time, e) for offset, e in enumerate(events, chunk.offset)]

    def ledger(self, uid: str, sink: str) -> LedgerRow | None:
        """The ledger row of a job's sink that writes to this log; None if it never registered."""
        self.views.decisions.refresh()
        self.views.decisions.partition.check_end()  # damage would hide a newer row
        return self.views.decisions.row(uid, sink)

    def sync(self) -> None:
        """Make all visible events durable, also those of other writers. Call it before storing a position durably.

        A stored position is then never ahead of the events that survive a power failure, with any fsync of the writers.
        """
        for partition in [*self.views.partitions, self.views.decisions.partition]:
            partition.refresh()
            if partition.bases:
                # Retention may have removed it since; it was synced when it was finished.
                with contextlib.suppress(FileNotFoundError):
                    self._disk.sync(partition.active.path)

    def close(self) -> None:
        """Does nothing for a reader. Writers override it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _microseconds(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)
