"""Under at-most-once: up to which time results may have been written that were due by time.

An epoch that breaks off may have written the results of windows, timers and joins that came due in it. Its input is left out, but
the next epoch begins with the state before it, in which these results are still to come. So a step records the time, durably,
before what it has emitted there goes on. After an epoch that broke off, what was due up to that time is dropped and counted.

    claims/EPOCH-COMPONENT-INSTANCE.ATTEMPT.json     {"parallelism": 2, "event": 1767225600000000}
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from streamwork.components import TimerClock
from streamwork.components.field_types import LAST_TIME
from streamwork.components.times import microseconds
from streamwork.errors import Refused
from streamwork.world import Disk

FOLDER, SUFFIX = "claims", ".json"
LAST = microseconds(LAST_TIME)


class Note(msgspec.Struct, frozen=True):
    """What an instance of a component has recorded in an epoch; times are microseconds."""

    parallelism: int
    event: int | None = None
    processing: int | None = None

    def of(self, clock: TimerClock) -> int | None:
        found: int | None = getattr(self, clock.value)
        return found


def claim_path(folder: Path, epoch: int, component: str, instance: int) -> Path:
    """`folder` is that of the job."""
    return folder / FOLDER / f"{epoch:012d}-{component}-{instance}"


class Fired:
    """The records of one instance of one component."""

    def __init__(self, disk: Disk, folder: Path, component: str, instance: int, parallelism: int) -> None:
        self._disk = disk
        self._folder = folder
        self._component = component
        self._instance = instance
        self._note = Note(parallelism)
        self.ahead = 0
        """Microseconds that a record is ahead, so that there is not one for each result that is due."""

    def begin(self, epoch: int, attempt: str) -> None:
        self._path = claim_path(self._folder, epoch, self._component, self._instance)
        self._path = self._path.with_name(f"{self._path.name}.{attempt}{SUFFIX}")
        self._note = Note(self._note.parallelism)

    def record(self, clock: TimerClock, until: int) -> None:
        """What is due up to this time may be written from here on."""
        known = self._note.of(clock)
        if known is None or known < until:
            self._note = msgspec.structs.replace(self._note, **{clock.value: max(until, min(until + self.ahead, LAST))})
            self._disk.make_folder(self._path.parent)
            self._disk.replace(self._path, msgspec.json.encode(self._note))

    def lost(self, after: int, before: int) -> dict[TimerClock, int]:
        """The times that were recorded in the epochs between these two: those that broke off. If the parallelism was another
        one, keys may have moved, and the records of all instances count.
        """
        found: dict[TimerClock, int] = {}
        for name in self._disk.names(self._folder / FOLDER):
            number, _, rest = name.partition("-")
            component, _, instance = rest.partition(".")[0].rpartition("-")
            is_mine = name.endswith(SUFFIX) and number.isdigit() and component == self._component
            if not is_mine or not after < int(number) < before:
                continue
            note = self._read(name)
            if note.parallelism == self._note.parallelism and instance != str(self._instance):
                continue
            for clock in (TimerClock.EVENT, TimerClock.PROCESSING):
                if (at := note.of(clock)) is not None:
                    found[clock] = max(at, found.get(clock, at))
        return found

    def _read(self, name: str) -> Note:
        path = self._folder / FOLDER / name
        try:
            return msgspec.json.decode(self._disk.read(path), type=Note)
        except msgspec.DecodeError as error:
            raise Refused(
                "SW-CLAIM-DAMAGED",
                f"{path} cannot be read: {error}. Results that were due in that epoch may have been written",
                "remove the file to go on: then these results may be written again",
            ) from error
