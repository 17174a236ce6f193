"""The lock that gives a partition one writer: an `flock` on a file that names the holder.

The operating system releases the lock when its process ends, also after a crash. The file stays; only the lock on it counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import weakref
from pathlib import Path
from typing import Protocol

import msgspec

from streamwork.errors import JobFailed
from streamwork.world import Clock, RealClock

FILE = "writer.lock"
_RETRY = 0.005


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a lock."""

    pid: int
    host: str
    since: float

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lock(Protocol):
    @property
    def held(self) -> bool: ...

    def release(self) -> None: ...


class Locks(Protocol):
    """Gives out locks. Tests on a simulated disk pass in their own."""

    def acquire(self, folder: Path, timeout: float) -> Lock:
        """Take the lock of a partition's folder. Raises SW-LOG-LOCKED, naming the holder, after `timeout` seconds."""

    def holder(self, folder: Path) -> Holder | None:
        """The current holder; None if the lock is free or the holder is unknown."""


class FileLock:
    """A held `flock`. A child made by `fork` does not inherit it: there `held` is False."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _held.add(self)

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)  # closing the last descriptor of an open file releases its lock
            self._descriptor = None


# A forked child shares the open file. Without this the child would hold the lock after its parent's death.
_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forget_in_child)


class FileLocks:
    """Locks on files named `writer.lock`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or RealClock()

    def acquire(self, folder: Path, timeout: float) -> FileLock:
        path = folder / FILE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = self._clock.monotonic() + timeout
        try:
            while not _try_lock(descriptor, fcntl.LOCK_EX):
                if self._clock.monotonic() >= deadline:
                    raise locked(folder, _read_holder(descriptor))
                self._clock.sleep(_RETRY)
            holder = Holder(os.getpid(), socket.gethostname(), self._clock.now())
            with contextlib.suppress(OSError):  # on a full disk the lock is held, but its file does not name the holder
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, msgspec.json.encode(holder) + b"\n", 0)
        except BaseException:
            os.close(descriptor)
            raise
        return FileLock(descriptor)

    def holder(self, folder: Path) -> Holder | None:
        try:
            descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            # A shared lock, so that two callers of this method do not take each other for writers.
            return None if _try_lock(descriptor, fcntl.LOCK_SH) else _read_holder(descriptor)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except msgspec.DecodeError:  # it is being written
        return None


def locked(folder: Path, holder: Holder | None) -> JobFailed:
    who = str(holder) if holder is not None else "another process"
    return JobFailed(
        "SW-LOG-LOCKED",
        f"{who} is writing to {folder}; a partition has one writer at a time",
        "append from that process, or end it and try again: the lock ends with the process",
    )
