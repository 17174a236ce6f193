"""Where events come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from streamwork.components.values import Event

E = TypeVar("E", bound=Event)
OnError = Literal["fail", "drop"]


class Slice(msgspec.Struct):
    """Some events of one partition, in offset order, as a reader hands them over."""

    events: list[Any]
    dropped: int = 0  # input that was no event and was left out, as `on_error` asked


class Partitioning(msgspec.Struct, frozen=True):
    """Input that is partitioned by key groups: all events of a key are in one partition, that of its group."""

    fields: tuple[str, ...]
    groups: int
    partitions: int


class OffsetSource(ABC, Generic[E]):
    """A source whose input lies in partitions and can be read again from any offset.

    An epoch's slice is planned by the driver with `partitions` and `end`, then read with `read`, perhaps several times
    and in another process. Objects are sent to workers: keep no open files in attributes.
    """

    event: type[E]
    max_events: int
    bounded: ClassVar[bool] = False
    """True if no input will ever be added: the job ends when all of it is done."""

    @abstractmethod
    def partitions(self) -> list[str]:
        """Names of the partitions, each matching [A-Za-z0-9_-]{1,64}."""

    @abstractmethod
    def end(self, partition: str, start: int, max_events: int) -> int:
        """The offset after at most `max_events` events from `start`; `start` itself if there is nothing new."""

    @abstractmethod
    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        """The events from offset `start` up to, not including, `end`: the same ones each time."""

    def first(self, partition: str) -> int:
        """The lowest offset that is there: where a job that never read this partition begins."""
        return 0

    def identity(self) -> str | None:
        """What this very input can be recognised by later, when it has grown; None if that is not known (yet)."""
        return None

    def settle(self) -> None:
        """Make durable whatever `end` has shown. Called before a position is kept, so that none is ever beyond the input."""

    def keep(self, uid: str, source_id: str, offsets: dict[str, int]) -> None:
        """Told from where on a job still needs the input, so that none of that is cleaned up."""

    def partitioning(self) -> Partitioning | None:
        """How events are spread over the partitions, if it is by a key."""
        return None
