"""`ManualStore`: where instances keep their state by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec

from streamwork.errors import Refused

Changes = Mapping[bytes, bytes | None]
"""Name of a record -> its content; None removes it."""


class Seat(msgspec.Struct, frozen=True):
    """An instance that has the right to store, until another one begins in its place."""

    component: str
    instance: int
    fence: int


class Saved(msgspec.Struct, frozen=True):
    """What an instance has stored: offset by partition, and its records."""

    offsets: dict[str, int] = {}
    records: dict[bytes, bytes] = {}


class Stored(msgspec.Struct, frozen=True):
    """How far an instance has come, for other instances and for reports."""

    component: str
    instance: int
    instances: int
    fence: int
    offsets: dict[str, int]


class ManualStore(ABC):
    """The state of one job, outside of it. Sent to the process of each instance: it opens its connection there.

    May block. `begin` and `save` are one transaction each.
    """

    @abstractmethod
    def begin(self, component: str, instance: int, instances: int) -> tuple[Seat, Saved]:
        """Take the place of an instance: from now on earlier ones can store nothing (`Seat.fence` is one higher). Returns what they
        have stored. Refuses another number of instances than the one that stored (`other_instances`).
        """

    @abstractmethod
    def save(self, seat: Seat, offsets: Mapping[str, int], changes: Changes) -> None:
        """Store offsets and changed records together, or nothing. Refuses a seat that is taken (`fenced`)."""

    @abstractmethod
    def all(self) -> list[Stored]:
        """How far every instance has come."""

    @abstractmethod
    def close(self) -> None: ...

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}  # each process opens its own


def fenced(seat: Seat) -> Refused:
    return Refused(
        "SW-MANUAL-FENCED",
        f"{seat.component}[{seat.instance}] was started again elsewhere: this process must not store its state any longer",
        "let the newer process run; if both were started on purpose, give one of the jobs a store of its own",
    )


def other_instances(component: str, stored: int, now: int) -> Refused:
    return Refused(
        "SW-MANUAL-INSTANCES",
        f"{component} has stored its state as {stored} instances, and has {now} now: keys would move away from their state",
        f"run it with parallelism={stored}; or empty the store, and read the input from its beginning",
    )
