"""The standbys of a job, as files: `status` shows them, and `streamwork stop` ends them.

    standbys/ID.json   which process waits, what it watches, and the checkpoint that it has read; it is rewritten every few seconds
    standbys/ID.stop   a request to the standby to end
    standbys/ID.spark.log   the output of its Spark, until it takes the job over

A standby removes its files when it ends or has taken the job over. Correctness does not depend on these files.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from streamwork.epoch.sealed import to_bytes
from streamwork.world import Clock, Disk, Processes, ProcessId

FOLDER, RECORD, STOP, SPARK_LOG = "standbys", ".json", ".stop", ".spark.log"
REFRESH_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A standby on another host that has not rewritten its file for so long is not counted. The clocks of two hosts may differ."""


class Waiting(msgspec.Struct, frozen=True):
    """A standby that waits."""

    id: str
    process: ProcessId
    since: float
    seen: float  # when it last said so
    fence: int = 0  # the one that it watches
    checkpoint: int | None = None  # the newest one that it has read


def standbys(disk: Disk, folder: Path, clock: Clock, processes: Processes) -> list[Waiting]:
    """The standbys that wait for a job, the longest wait first. `folder` is that of the job."""
    found = [one for one in _all(disk, folder) if _lives(one, clock, processes)]
    return sorted(found, key=lambda one: (one.since, one.id))


def ask_to_end(disk: Disk, folder: Path, waiting: Waiting) -> None:
    disk.replace(folder / FOLDER / f"{waiting.id}{STOP}", b"")


class Place:
    """The files of this standby."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        clock: Clock,
        processes: Processes,
        new_id: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        """`folder` is that of the job."""
        self._disk = disk
        self._job = folder
        self._folder = folder / FOLDER
        self._clock = clock
        self._processes = processes
        self._id = new_id()
        self._written: Waiting | None = None

    @property
    def spark_log(self) -> Path:
        return self._folder / f"{self._id}{SPARK_LOG}"

    def enter(self) -> None:
        """Make the folder, and remove what standbys have left that are gone."""
        self._disk.make_folder(self._folder)
        for one in _all(self._disk, self._job):
            if self._processes.gone(one.process):
                self._remove(one.id)

    def write(self, fence: int, checkpoint: int | None) -> None:
        """Show that this standby waits. Cheap, unless something has changed or the last time is a while ago."""
        now, last = self._clock.now(), self._written
        since = now if last is None else last.since
        mine = Waiting(self._id, self._processes.me(), since, now, fence, checkpoint)
        fresh = last is not None and 0 <= now - last.seen < REFRESH_SECONDS
        if fresh and last is not None and msgspec.structs.replace(mine, seen=last.seen) == last:
            return
        self._written = mine
        self._disk.replace(self._folder / f"{self._id}{RECORD}", to_bytes(mine))

    def asked_to_end(self) -> bool:
        return self._disk.exists(self._folder / f"{self._id}{STOP}")

    def leave(self) -> None:
        self._remove(self._id)

    def _remove(self, name: str) -> None:
        for suffix in (RECORD, STOP, SPARK_LOG):
            self._disk.discard(self._folder / f"{name}{suffix}")


def _all(disk: Disk, folder: Path) -> Iterator[Waiting]:
    """What the files say. One that cannot be read is passed over."""
    for name in disk.names(folder / FOLDER):
        if name.endswith(RECORD):
            try:
                found = msgspec.json.decode(disk.read(folder / FOLDER / name), type=Waiting)
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if found.id == name.removesuffix(RECORD):  # the id becomes a file name again
                yield found


def _lives(one: Waiting, clock: Clock, processes: Processes) -> bool:
    here = one.process.host == processes.me().host
    return not processes.gone(one.process) if here else abs(clock.now() - one.seen) < STALE_SECONDS
