"""Faults as data: markers among the events of an input."""

from __future__ import annotations

import msgspec


class Crash(msgspec.Struct, frozen=True):
    """Crash the machine once, in the epoch that reads the next event, and start the job again."""


class Advance(msgspec.Struct, frozen=True):
    """Advance the clock by this many seconds before the next event is read."""

    seconds: float


class SetClock(msgspec.Struct, frozen=True):
    """Set the machine's clock forward or back by this many seconds before the next event is read. Monotonic time
    (`Clock.monotonic`) is unaffected.
    """

    seconds: float


class Pause(msgspec.Struct, frozen=True):
    """Stall the source once, for this many seconds, while it reads the next event."""

    seconds: float


class Lose(msgspec.Struct, frozen=True):
    """Lose the instance that reads the next event, once. The job continues without a restart."""


Marker = Crash | Advance | SetClock | Pause | Lose
