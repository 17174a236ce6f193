"""What the tests of the log share: an event, a clock that is moved by hand, locks in memory, a log on a simulated disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamwork.components import Event
from streamwork.log import EventLog, Holder, Lock, locked
from streamwork.testing.disk import SimulatedDisk

PATH = Path("/logs/payments")


class Payment(Event):
    id: int
    card: str
    amount: float


def payments(*ids: int) -> list[Payment]:
    return [Payment(i, f"card-{i % 13}", i / 2) for i in ids]


class HandClock:
    """Moves only when told to, and when somebody sleeps."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class MemoryLock:
    def __init__(self, locks: MemoryLocks, folder: Path) -> None:
        self._locks, self._folder = locks, folder

    @property
    def held(self) -> bool:
        return self._locks.held.get(self._folder) is self

    def release(self) -> None:
        if self.held:
            del self._locks.held[self._folder]


class MemoryLocks:
    """Locks of a simulated machine; a crash is a new object."""

    def __init__(self) -> None:
        self.held: dict[Path, Any] = {}

    def acquire(self, folder: Path, timeout: float) -> Lock:
        if folder in self.held:
            raise locked(folder, self.holder(folder))
        self.held[folder] = MemoryLock(self, folder)
        return self.held[folder]

    def holder(self, folder: Path) -> Holder | None:
        return Holder(1, "simulated", 0.0) if folder in self.held else None


def counter(prefix: str) -> Any:
    """Names for transactions that are the same in every run."""
    numbers = iter(range(1_000_000))
    return lambda: f"{prefix}{next(numbers)}"


def open_log(disk: SimulatedDisk, clock: HandClock, **options: Any) -> EventLog[Payment]:
    """A log on a simulated machine, in a new life of it."""
    options = {"locks": MemoryLocks(), "token": counter(f"life{disk.life}-"), "lock_timeout": 0.0, **options}
    return EventLog(PATH, Payment, disk=disk, clock=clock, **options)


def everything(log: Any, partition: int = 0) -> list[Payment]:
    """All events of a partition that a new reader sees."""
    return [
        e for chunk in log.read_chunks(partition, log.start(partition), log.end(partition)) for e in events(log, chunk)
    ]


def events(log: Any, chunk: Any) -> list[Payment]:
    return [located.event for located in log.locate(chunk)]
