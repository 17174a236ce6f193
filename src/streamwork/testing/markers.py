"""Faults as data: markers that stand among the events of an input."""

from __future__ import annotations

import msgspec


class Crash(msgspec.Struct, frozen=True):
    """The machine dies once, in the epoch that reads the event after this, and starts again."""


class Advance(msgspec.Struct, frozen=True):
    """The clock goes on by so many seconds before the event after this is read."""

    seconds: float


class SetClock(msgspec.Struct, frozen=True):
    """Somebody sets the machine's clock by so many seconds, forward or back, before the event after this is read. Time itself
    (`Clock.monotonic`) goes on as before.
    """

    seconds: float


class Pause(msgspec.Struct, frozen=True):
    """The source stalls for so many seconds while it reads the event after this, once."""

    seconds: float


class Lose(msgspec.Struct, frozen=True):
    """The instance that reads the event after this is lost, once; the job goes on without a restart."""


Marker = Crash | Advance | SetClock | Pause | Lose
