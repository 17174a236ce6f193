"""Sources: the base classes, and the slices that they are read in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.components.collector import EventCollector
from streamwork.components.columns import Columns, as_events, conforming
from streamwork.components.generics import type_arguments
from streamwork.components.instance import Instance
from streamwork.components.operator import check_record
from streamwork.components.values import Event, Record
from streamwork.errors import Refused, WrongUse

E = TypeVar("E", bound=Event)
R = TypeVar("R", bound=Record)
EVERYTHING = 2**62
"""A limit that no input reaches."""
OnError = Literal["fail", "drop", "dead-letter"]
Start = Literal["stored", "latest", "earliest"]
Offsets = int | Sequence[int] | np.ndarray[Any, Any] | Callable[[], np.ndarray[Any, Any]]


def check_on_error(on_error: str | None) -> OnError | None:
    if on_error not in (None, "fail", "drop", "dead-letter"):
        raise WrongUse(
            "SW-JOB-SETTING",
            f"on_error={on_error!r} is not known here",
            'use "fail", "drop" or "dead-letter"; Retry(...) is for operators: a source or a sink that cannot be reached fails '
            "the job, which restarts",
        )
    return on_error  # type: ignore[return-value]


class Slice:
    """Some events of one partition, in offset order, as a source reads them: a list, or an Arrow batch with the columns of the
    event, which is checked before it is processed.

    `offsets` is the offset of the first event, if the others follow without gaps; else the offsets of all, or a function that
    returns them and is called only if they are needed. The offset of an event must not depend on where the input is cut into
    slices: events are routed by it.

    `dropped` counts input that is not an event and is dropped, by `on_error`. `letters` is such input that is kept as dead
    letters: its text and the reason. `left_out` is about filters directly behind the source that were applied while reading:
    component -> number of events that it has removed, in the order of the filters. The events of the slice continue behind the
    last filter.
    """

    __slots__ = ("_offsets", "dropped", "given", "left_out", "letters")

    def __init__(
        self,
        events: list[Any] | Columns | pa.RecordBatch,
        offsets: Offsets,
        dropped: int = 0,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        self.given = events
        self._offsets = offsets
        self.dropped = dropped
        self.letters: list[tuple[str, str]] = []
        self.left_out = left_out or {}

    def leave_out(self, on_error: OnError | None, text: str, why: str) -> None:
        """Drop input that is not an event, or keep it as a dead letter."""
        if on_error == "dead-letter":
            self.letters.append((text, why))
        else:
            self.dropped += 1

    @property
    def offsets(self) -> np.ndarray[Any, Any]:
        """The offset of every event."""
        found = self._offsets() if callable(self._offsets) else self._offsets
        if isinstance(found, int):
            return np.arange(found, found + len(self.given), dtype=np.int64)
        assert len(found) == len(self.given), "every event has an offset"
        return np.asarray(found, np.int64)

    def move(self, by: int) -> None:
        """Add a number to all offsets."""
        before = self._offsets
        if isinstance(before, int):
            self._offsets = before + by
        else:
            self._offsets = lambda: np.asarray(before() if callable(before) else before, np.int64) + by

    def conform(self, kind: type[Event], source: str) -> None:
        """Check an Arrow batch of user code. Refuses one that does not hold events of this type."""
        if isinstance(self.given, pa.RecordBatch):
            self.given = conforming(kind, self.given, source)

    def part(self, given: list[Any] | Columns, at: int) -> Slice:
        """Some of the events of this slice, from the place `at` on, without its counts."""
        offsets = self._offsets + at if isinstance(self._offsets, int) else lambda: self.offsets[at : at + len(given)]
        return Slice(given, offsets, left_out=dict.fromkeys(self.left_out, 0))

    def add(self, other: Slice) -> None:
        """Append the next slice to this one, whose events are a list."""
        assert isinstance(self.given, list)
        mine, theirs = self.offsets, other.offsets
        self._offsets = np.concatenate((mine, theirs))
        self.given += other.events
        self.dropped += other.dropped
        self.letters += other.letters

    @property
    def came(self) -> int:
        """The number of records read: events, and input that is not an event."""
        return len(self.given) + self.dropped + len(self.letters) + sum(self.left_out.values())

    @property
    def events(self) -> list[Any]:
        """Not of a batch that has not been checked."""
        assert not isinstance(self.given, pa.RecordBatch), "check it first"
        return as_events(self.given)


class Partitioning(msgspec.Struct, frozen=True):
    """A source that is partitioned by key groups: all events of a key are in the partition of its group."""

    fields: tuple[str, ...]
    groups: int
    partitions: int


class ReadProgress(msgspec.Struct, frozen=True):
    """How far a job has read a source: offsets by partition."""

    uid: str  # of the job
    job: str  # the name of the job
    source: str  # the id of the source in the job
    needed: dict[str, int]  # where a restart from the oldest kept checkpoint reads on
    completed: dict[str, int]  # where the newest completed checkpoint ends


class AnySource:
    """The base class of all sources."""

    bounded: bool = False
    """True if the input is complete: nothing is added to it. A job with only bounded sources ends when all input is processed."""

    long_lived: ClassVar[bool] = False
    """True if an object keeps what the next epoch needs, outside of the engine's state. Such a source runs in local and live mode
    only: in the other modes an epoch may get new objects."""

    on_error: OnError | None = None
    """How to handle input that is not an event: "fail" stops the job, "drop" discards and counts it, "dead-letter" keeps it as a
    dead letter. None: the default of the job's semantics; "fail" for a source outside of a job."""

    def with_on_error(self, on_error: OnError, override: bool = False) -> Self:
        """This source with this `on_error`. One that is set already is replaced only with `override`."""
        if self.on_error is not None and not override:
            return self
        mine = object.__new__(type(self))  # copy.copy would drop attributes that are not pickled
        mine.__dict__.update(self.__dict__)
        mine.on_error = on_error
        return mine


class Source(AnySource, Generic[E]):
    """A user-written source without state: its events cannot be read again, so it does not support exactly-once.

    `get_events` emits the events that are available and returns within about 100 ms. In an epoch it is called until it has emitted
    `max_events`, until `checkpoint_every` has passed, or until it emits nothing.

    It has one instance, unless the job sets more; then each must read its own part of the input. `setup_instance` gets the number
    of the instance, and `instance.count` is how many there are.
    """

    max_events: int = 100_000
    replayable: ClassVar[bool] = False

    def setup_instance(self, instance: Instance) -> None: ...

    def get_events(self, collector: EventCollector) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the instance ends, except after a crash."""

    @property
    def event(self) -> type[Event]:
        return type_arguments(type(self), Source)[0]


class StatefulSource(AnySource, Generic[E, R]):
    """A user-written source with one record per instance: its place in the input.

    `setup_instance` gets the record of the last checkpoint, None on the very first start; `get_state` returns the current one, and
    is called for each checkpoint. ``replayable = True`` declares that the record alone decides which events come next, so that the
    same events follow after a crash; exactly-once needs it.

    It has one instance, unless the job sets more; then each must read its own part of the input, for example
    ``range(instance, n, instance.count)``.
    """

    max_events: int = 100_000
    replayable: ClassVar[bool] = False

    def setup_instance(self, instance: Instance, state: R | None) -> None:
        raise NotImplementedError

    def get_events(self, collector: EventCollector) -> None:
        raise NotImplementedError

    def get_state(self) -> R:
        raise NotImplementedError

    def rescale(self, states: list[R], count: int) -> Sequence[R | None]:
        """Divide the records of all instances among `count` instances, as `StatefulOperator.rescale` does."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the instance ends, except after a crash."""

    @property
    def event(self) -> type[Event]:
        return type_arguments(type(self), StatefulSource)[0]

    @property
    def record(self) -> type[Record]:
        return check_record(type_arguments(type(self), StatefulSource)[1])


class OffsetSource(AnySource, ABC, Generic[E]):
    """A source whose input lies in partitions and can be read again from any offset.

    An epoch's slices are planned with `partitions` and `ends`, then read with `read`, perhaps several times and in another
    process. Objects are sent to workers: keep no open files in attributes.
    """

    unit: str = "offsets"
    """What offsets count, as a word for output. With "events", the difference of two offsets is the number of events between them
    (in a log at most: aborted transactions have offsets, too)."""

    event: type[E]
    max_events: int
    start: Start = "stored"
    """Where reading begins when the job starts: "stored" is the position of the last checkpoint, on the first start the earliest
    event; "latest" is the end of the input, at each start; "earliest" is the same as "stored"."""

    in_columns: bool = False
    """True if all operators behind it take whole columns: a source that can give either then gives columns. Set by the engine."""

    @abstractmethod
    def partitions(self) -> list[str]:
        """Names of the partitions, each matching [A-Za-z0-9_-]{1,64}."""

    def fixed_partitions(self) -> int | None:
        """The number of partitions, if it never changes; None if partitions may be added.

        More instances than this have nothing to read. If the number is fixed, adjacent partitions are read by one instance, like
        key groups; else the name of a partition decides, so that none moves when another one is added.
        """
        return len(self.partitions())

    @abstractmethod
    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        """For each partition of `starts`, the offset after the next `limit` events from its start, or after all that there are;
        its start if there is nothing new.

        Called once for each plan, with all partitions, so that a broker gets one request.
        """

    def available(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        """As `ends`, for an instance that reads all the time and asks many times a second: it may be less than there is, and a
        broker should not be asked each time.
        """
        return self.ends(starts, limit)

    def has_more(self, ends: Mapping[str, int]) -> bool:
        """False if there was nothing after these offsets when `ends` returned them. Asked about partitions of which the plan took
        `limit` events or more. Answers from what `ends` found, without asking a broker.
        """
        return True

    @abstractmethod
    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        """The events from offset `start` up to, not including, `end`: the same ones each time."""

    def slices(self, source: str, partition: str, start: int, end: int) -> Iterator[Slice]:
        """What `read` gives, checked. `source` is the id of this source in the job, for errors."""
        for piece in self.read(partition, start, end):
            piece.conform(self.event, source)
            yield piece

    def earliest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        """The lowest offset of each of these partitions, where a job begins that has never read it. A missing one is 0."""
        return {}

    def latest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        """The offset after the last event of each of these partitions."""
        first = self.earliest(partitions)
        return self.ends({partition: first.get(partition, 0) for partition in partitions}, EVERYTHING)

    def at_time(self, partitions: Sequence[str], time: datetime) -> Mapping[str, int] | None:
        """For each of these partitions, the offset of the first event that was added at a time or later; None: not known."""
        return None

    def known_ends(self, starts: Mapping[str, int]) -> Mapping[str, int]:
        """The offset after all present input of each partition, for lag; its start if a job that has read up to there has caught
        up. Asked at most once a second. A partition is missing if its end cannot be found cheaply: then lag is how much the next
        checkpoint will read.
        """
        return self.latest(list(starts))

    def sync(self) -> None:
        """Make durable what `ends` has found. Called before a position is stored, so that no position is ever beyond the input."""

    def mark(self, partition: str, end: int) -> str | None:
        """What identifies the input of this partition from now on, when it is read up to offset `end`; None if nothing does. It
        must stay valid while input is added. Asked before the first plan that reads from the partition.
        """
        return None

    def extended(self, partition: str, mark: str, end: int) -> str:
        """A mark that covers more of the same input than `mark`, now that it is read up to `end`; else `mark`. Asked before every
        plan. Each new mark is a durable write, so there should be few.
        """
        return mark

    def recognises(self, partition: str, mark: str) -> bool:
        """False if this is certainly not the input that `mark` was made from. Asked before every plan, so it must be cheap. For a
        mark that an older version has made from the whole source, `partition` is empty.
        """
        return True

    def keep(self, progress: ReadProgress) -> None:
        """Record how far a job has read, and keep all input that it still needs."""

    def forget(self, uid: str) -> None:
        """A consumer that `keep` has registered no longer needs anything."""

    def partitioning(self) -> Partitioning | None:
        """How keys are distributed over the partitions; None if they are not partitioned by key."""
        return None

    def native(self) -> OffsetSource[E] | None:
        """The source whose rows are in Spark's JVM, for hosts that read them there and not with `read`; None for most."""
        return None


def worth_extending(size: int, more: int, limit: int) -> bool:
    """True if a mark of the first `size` bytes or events should become one of the first `more`, of `limit` at most: when they are
    twice as many, so that it happens a few times only.
    """
    return size < more and (more >= 2 * size or more == limit)


def source_changed(source: str, partition: str) -> Refused:
    """The error for input that is not what a job has read before."""
    where = f", partition {partition!r}," if partition else ""
    return Refused(
        "SW-SOURCE-CHANGED",
        f"source {source!r}{where} is not the input that the job has read before: it was replaced or changed",
        "restore the old input; or give the new one an id of its own and run it in another --root",
    )
