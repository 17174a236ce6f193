"""Where events come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import msgspec
import numpy as np

from streamwork.components.collector import EventCollector
from streamwork.components.columns import Columns, as_events
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
    """Some events of one partition, in offset order, as a reader hands them over: a list, or columns.

    `offsets` are those of the events: that of the first one if the others follow it without holes; else those of all, or a
    function that gives them, which is called only where somebody needs them. The offset of an event must not depend on where
    the input was cut into slices: what routes events goes by it.

    `dropped` counts input that was no event and was left out, as `on_error` asked; `letters` are those that are to be kept as
    dead letters instead: what it was, as text, and what is wrong with it. `left_out` tells of filters directly behind
    the source that were applied before reading: component -> how many events it has left out, in the order of their way. The
    events go on behind the last of them.
    """

    __slots__ = ("_offsets", "dropped", "given", "left_out", "letters")

    def __init__(
        self, events: list[Any] | Columns, offsets: Offsets, dropped: int = 0, left_out: Mapping[str, int] | None = None
    ) -> None:
        self.given = events
        self._offsets = offsets
        self.dropped = dropped
        self.letters: list[tuple[str, str]] = []
        self.left_out = left_out or {}

    def leave_out(self, on_error: OnError | None, text: str, why: str) -> None:
        """Something that is no event."""
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
        """Let the offsets begin further on."""
        before = self._offsets
        if isinstance(before, int):
            self._offsets = before + by
        else:
            self._offsets = lambda: np.asarray(before() if callable(before) else before, np.int64) + by

    def part(self, given: list[Any] | Columns, at: int) -> Slice:
        """Some of the events of this slice, from the place `at` on; nothing else of it."""
        offsets = self._offsets + at if isinstance(self._offsets, int) else lambda: self.offsets[at : at + len(given)]
        return Slice(given, offsets, left_out=dict.fromkeys(self.left_out, 0))

    def add(self, other: Slice) -> None:
        """What came next, to a list."""
        assert isinstance(self.given, list)
        mine, theirs = self.offsets, other.offsets
        self._offsets = np.concatenate((mine, theirs))
        self.given += other.events
        self.dropped += other.dropped
        self.letters += other.letters

    @property
    def came(self) -> int:
        """How much was read for it: events, and what is none."""
        return len(self.given) + self.dropped + len(self.letters) + sum(self.left_out.values())

    @property
    def events(self) -> list[Any]:
        return as_events(self.given)


class Partitioning(msgspec.Struct, frozen=True):
    """Input that is partitioned by key groups: all events of a key are in one partition, that of its group."""

    fields: tuple[str, ...]
    groups: int
    partitions: int


class ReadProgress(msgspec.Struct, frozen=True):
    """How far a job has read one of its sources: offsets by partition."""

    uid: str  # of the job
    job: str  # its name, for people
    source: str  # the id of the source in the job
    needed: dict[str, int]  # where the oldest kept checkpoint would go on
    completed: dict[str, int]  # where the newest completed checkpoint ends


class AnySource:
    """What all sources share."""

    bounded: bool = False
    """True if the input is complete: nothing is added to it. A job all of whose sources are bounded ends when all is done."""

    on_error: OnError | None = None
    """What becomes of input that is no event: "fail" stops the job, "drop" leaves it out and counts it, "dead-letter" keeps it
    as a dead letter. None: as the semantics of the job have it; "fail" for a source by itself."""

    def with_on_error(self, on_error: OnError, override: bool = False) -> Self:
        """This source with this `on_error`; where it was told something else, only to `override` that."""
        if self.on_error is not None and not override:
            return self
        mine = object.__new__(type(self))  # copy.copy would leave out what does not travel to workers
        mine.__dict__.update(self.__dict__)
        mine.on_error = on_error
        return mine


class Source(AnySource, Generic[E]):
    """A source that people write, and that keeps nothing: what it gave is gone. Exactly-once cannot be had with it.

    `get_events` emits what is there and returns within about 100 ms. In an epoch it is called again until it has given
    `max_events`, until `checkpoint_every` has passed, or until it emits nothing.

    It has one instance unless the job gives it more; then each must take its share of the input: `setup_instance` is told its
    number, and in `instance.count` how many there are.
    """

    max_events: int = 100_000
    replayable: ClassVar[bool] = False

    def setup_instance(self, instance: Instance) -> None: ...

    def get_events(self, collector: EventCollector) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called when the instance goes away, except on a crash."""

    @property
    def event(self) -> type[Event]:
        return type_arguments(type(self), Source)[0]


class StatefulSource(AnySource, Generic[E, R]):
    """A source that people write, with one record per instance: where it is.

    ``replayable = True`` promises that the state alone decides what comes next, so that after a crash the same events come
    again; exactly-once needs it.

    It has one instance unless the job gives it more; then each must take its share, for example
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

    def close(self) -> None:
        """Called when the instance goes away, except on a crash."""

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
    """What offsets count, for people. Where it is "events", there are as many between two offsets as their difference (in a
    log at most: transactions that were broken off have offsets, too)."""

    event: type[E]
    max_events: int
    start: Start = "stored"
    """Where reading begins when the job starts: "stored", where it was left, or at the earliest event if it never was;
    "latest", behind everything that is there, each time; "earliest" is "stored" under another name."""

    @abstractmethod
    def partitions(self) -> list[str]:
        """Names of the partitions, each matching [A-Za-z0-9_-]{1,64}."""

    def fixed_partitions(self) -> int | None:
        """How many partitions there are, if that never changes while the job lives; None if partitions may be added.

        More instances than this have nothing to read. Where the number is fixed, neighbouring partitions go to one instance,
        as key groups do; else the name of a partition decides, so that none moves when another one is added.
        """
        return len(self.partitions())

    @abstractmethod
    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        """For each partition of `starts`, the offset after the next `limit` events from its start, or after all that there are;
        its start if there is nothing new.

        Called once for each plan, with all partitions, so that a broker is asked once.
        """

    def has_more(self, ends: Mapping[str, int]) -> bool:
        """False if there was nothing after these offsets when `ends` returned them. Asked about partitions of which the plan took
        `limit` events or more. Answers from what `ends` found, without asking a broker.
        """
        return True

    @abstractmethod
    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        """The events from offset `start` up to, not including, `end`: the same ones each time."""

    def earliest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        """The lowest offset of each of these partitions, where a job begins that has never read it. A missing one is 0."""
        return {}

    def latest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        """The offset after the last event of each of these partitions."""
        first = self.earliest(partitions)
        return self.ends({partition: first.get(partition, 0) for partition in partitions}, EVERYTHING)

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
        """Remember how far a job has read, and keep all input that it still needs."""

    def partitioning(self) -> Partitioning | None:
        """How events are spread over the partitions, if it is by a key."""
        return None

    def native(self) -> OffsetSource[E] | None:
        """The source whose rows are in Spark's JVM, so that a host with Spark brings them, instead of `read`; None for most."""
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
        "bring the old one back; or give the new one an id of its own and run it in another --root",
    )
