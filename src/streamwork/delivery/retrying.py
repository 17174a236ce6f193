"""Marks of events that are tried again in place, as files: what waits for what, readable by the driver and by `status`.

    control/retrying/FENCE-EPOCH-COMPONENT-INSTANCE.json   one instance tries an event again; rewritten every second
    control/retrying/FENCE.end                             the driver of that fence asks for the end of all waits

A mark is information about an epoch that is under way. Nothing here is needed for correctness: a mark that cannot be written or
read is one that is not there.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from streamwork.world import Clock, Disk

FOLDER = "control/retrying"
FRESH_SECONDS = 1.0
"""How often a mark is rewritten."""
STALE_SECONDS = 10.0
"""A mark that was not rewritten for so long is that of a task that is gone."""
LOOK_SECONDS = 0.2
"""Shortest interval, in seconds, at which a waiting instance checks whether its driver asks it to end."""
GRACE_SECONDS = 10.0
"""How much longer than `within` the last try may take."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_NAME = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-[A-Za-z0-9_-]{1,64}-[0-9]{1,9}\.json", re.ASCII)


class Mark(msgspec.Struct, frozen=True):
    """What one instance of a component waits for."""

    component: str
    instance: int
    epoch: int
    fence: int
    event: str
    error: str  # of the last failure
    failures: int
    times: int | None  # how often it may be tried again; None: no limit
    within: float | None  # seconds after the first failure until it is given up; None: no limit
    then: str
    since: float  # seconds since 1970: the first failure
    due: float  # seconds since 1970: the next try
    beat: int = 0

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.fence}-{self.epoch}-{self.component}-{self.instance}.json"


class Marks:
    """The marks that one instance of a chain keeps in one epoch."""

    def __init__(self, disk: Disk, folder: Path, fence: int, epoch: int, clock: Clock) -> None:
        """`folder` is that of the job."""
        self.clock = clock
        self.fence, self.epoch = fence, epoch
        self._disk, self._folder = disk, folder
        self._open: dict[str, Mark] = {}
        self._lock = threading.Lock()  # a heartbeat may refresh what is being removed
        self._refreshed = self._looked = float("-inf")
        self._ended = False

    def put(self, mark: Mark) -> None:
        with self._lock:
            self._open[mark.path] = mark
            self._refreshed = self.clock.monotonic()
            self._write(mark)

    def remove(self, component: str, instance: int) -> None:
        with self._lock:
            for path, mark in [*self._open.items()]:
                if (mark.component, mark.instance) == (component, instance):
                    del self._open[path]
                    with contextlib.suppress(OSError):
                        self._disk.discard(self._folder / path)

    def refresh(self) -> None:
        """To be called often while something waits. May be called from any thread."""
        with self._lock:
            if self.clock.monotonic() < self._refreshed + FRESH_SECONDS:
                return
            self._refreshed = self.clock.monotonic()
            for path, mark in self._open.items():
                self._open[path] = msgspec.structs.replace(mark, beat=mark.beat + 1)
                self._write(self._open[path])

    def ended(self) -> bool:
        """True if the driver asks for the end of all waits."""
        now = self.clock.monotonic()
        if not self._ended and now >= self._looked + LOOK_SECONDS:
            self._looked = now
            with contextlib.suppress(OSError):
                self._ended = self._disk.exists(_end(self._folder, self.fence))
        return self._ended

    def _write(self, mark: Mark) -> None:
        with contextlib.suppress(OSError):
            self._disk.make_folder(self._folder / FOLDER)
            self._disk.replace(self._folder / mark.path, msgspec.json.encode(mark))


def marks(disk: Disk, folder: Path, fence: int | None = None) -> list[Mark]:
    """The marks that can be read, of one driver or of all. Never raises."""
    found: list[Mark] = []
    with contextlib.suppress(OSError):
        for name in disk.names(folder / FOLDER):
            known = _NAME.fullmatch(name)
            if known is not None and (fence is None or int(known[1]) == fence):
                with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                    found.append(msgspec.json.decode(disk.read(folder / FOLDER / name), type=Mark))
    return found


class Watch:
    """The marks of one driver's tasks, as the driver sees them: which are fresh, by its own clock."""

    def __init__(self, disk: Disk, folder: Path, fence: int, monotonic: Callable[[], float]) -> None:
        self._disk, self._folder, self._fence, self._now = disk, folder, fence, monotonic
        self._seen: dict[tuple[str, float], tuple[int, float, float]] = {}  # -> beat, when it changed, first seen

    def fresh(self, epoch: int) -> list[Mark]:
        """What waits in that epoch. A mark that does not change is none: its task is gone. Nor is one that has been there for
        longer than its `within` allows: its last try does not return.
        """
        now, before, self._seen = self._now(), self._seen, {}
        found = []
        for mark in marks(self._disk, self._folder, self._fence):
            beat, changed, first = before.get((mark.path, mark.since), (-1, now, now))
            changed = now if mark.beat != beat else changed
            self._seen[mark.path, mark.since] = mark.beat, changed, first
            in_time = mark.within is None or now - first <= mark.within + GRACE_SECONDS
            if mark.epoch == epoch and now - changed <= STALE_SECONDS and in_time:
                found.append(mark)
        return found

    def end(self) -> None:
        """Ask for the end of all waits of this driver's tasks."""
        self._disk.make_folder(self._folder / FOLDER)
        self._disk.replace(_end(self._folder, self._fence), b"")

    def clear(self, epoch: int | None = None) -> None:
        """Remove the marks that were seen of an epoch that is over and of those before it; of all epochs, and of earlier drivers,
        if None.
        """
        if epoch is not None and not self._seen:
            return
        with contextlib.suppress(OSError):
            for name in self._disk.names(self._folder / FOLDER):
                known = _NAME.fullmatch(name)
                if known is None:
                    stem, _, kind = name.partition(".")
                    over = (
                        epoch is None
                        and kind == "end"
                        and _NUMBER.fullmatch(stem) is not None
                        and int(stem) <= self._fence
                    )
                elif int(known[1]) == self._fence:
                    over = epoch is None or int(known[2]) <= epoch
                else:
                    over = epoch is None and int(known[1]) < self._fence
                if over:
                    self._disk.discard(self._folder / FOLDER / name)


def _end(folder: Path, fence: int) -> Path:
    return folder / FOLDER / f"{fence}.end"
