"""Vital signs of tasks, as files: what each instance is at, and the pressure in the channels between instances.

    vitals/FENCE-TASK.json    one process with instances of a job; rewritten every second by a thread of its own

Vital signs are information about a job that runs. Nothing depends on them: a file that cannot be written or read is missing.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import msgspec

from streamwork.engine.histogram import Histogram
from streamwork.world import Disk

FOLDER = "vitals"
FRESH_SECONDS = 1.0
"""How often they are rewritten."""
STALE_SECONDS = 10.0
"""Vital signs that were not rewritten for so long are those of a task that is gone."""
MOST_EPISODES = 20
_NAME = re.compile(r"([0-9]{1,18})-[a-z0-9]{1,18}\.json", re.ASCII)


class Episode(msgspec.Struct, frozen=True):
    """One time of pressure, in seconds since 1970. It lasts if it has no end."""

    began: float
    ended: float | None = None


class EdgeVital(msgspec.Struct, frozen=True, kw_only=True):
    """A bounded channel from one instance to another."""

    sender: str  # the component and its instance: "per-card[0]"
    receiver: str
    policy: str
    events: int  # that wait
    bytes: int
    most_events: int | None = None
    most_bytes: int | None = None
    since: float | None = None  # since when it is full, in seconds since 1970; None: it has room
    full_seconds: float = 0.0  # how long it was full in all
    episodes: tuple[Episode, ...] = ()  # the last times of pressure, oldest first
    sent: int = 0  # events for it, dropped ones included
    received: int = 0  # events that were taken out of it
    dropped: int = 0  # events that were dropped instead


class InstanceVital(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of a chain."""

    components: tuple[str, ...]
    instance: int
    epoch: int
    turns: int  # slices and items that it has processed
    moved_at: float  # when that last changed, or when it last had nothing to do, in seconds since 1970
    busy: bool  # in the middle of a turn
    waiting: int  # items at its inputs
    last_event: str = ""
    stack: tuple[str, ...] = ()  # where its thread is, innermost last, if it does not move

    @property
    def name(self) -> str:
        return f"{self.components[0]}[{self.instance}]"


class LatencyVital(msgspec.Struct, frozen=True, kw_only=True):
    """How long events took to one sink of a task, in live mode."""

    sink: str
    staged: bool = False  # under exactly-once: what is staged becomes visible with its checkpoint
    seconds: float  # how long the recent time is
    recent: Histogram
    total: Histogram  # since the task began


class TaskVital(msgspec.Struct, frozen=True, kw_only=True):
    """One process with instances of a job."""

    fence: int
    task: str
    pid: int
    host: str
    at: float  # seconds since 1970
    instances: tuple[InstanceVital, ...] = ()
    edges: tuple[EdgeVital, ...] = ()
    latencies: tuple[LatencyVital, ...] = ()  # in live mode


def write_vitals(disk: Disk, folder: Path, found: TaskVital) -> None:
    """`folder` is that of the job."""
    with contextlib.suppress(OSError):
        disk.make_folder(folder / FOLDER)
        disk.replace(folder / FOLDER / f"{found.fence}-{found.task}.json", msgspec.json.encode(found))


def read_vitals(disk: Disk, folder: Path, fence: int, now: float) -> list[TaskVital]:
    """Those of one driver's tasks that are fresh. Never raises."""
    found: list[TaskVital] = []
    with contextlib.suppress(OSError):
        for name in disk.names(folder / FOLDER):
            known = _NAME.fullmatch(name)
            if known is not None and int(known[1]) == fence:
                with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                    one = msgspec.json.decode(disk.read(folder / FOLDER / name), type=TaskVital)
                    found += [one] if now - one.at <= STALE_SECONDS else []
    return found


def clear_vitals(disk: Disk, folder: Path, before: int) -> None:
    """Remove those of drivers with lower fences."""
    with contextlib.suppress(OSError):
        for name in disk.names(folder / FOLDER):
            known = _NAME.fullmatch(name)
            if known is not None and int(known[1]) < before:
                disk.discard(folder / FOLDER / name)
