"""What each start of a job began with.

fences/F.start.json    the manifest that the driver of fence F started from: those of lower fences beyond that epoch do not
                       count
fences/F.dropped.json  the components, or COMPONENT.FIELD, whose state in manifests of lower fences does not count
                       (--drop-state); written before F.start.json, and ignored without it
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.epoch.sealed import read_sealed, to_bytes
from streamwork.job.params import Value, Values
from streamwork.job.semantics import EXACTLY_ONCE, Promise
from streamwork.world import Disk, FileKind, damaged, number_of

START, DROPPED = ".start.json", ".dropped.json"
FENCE_FILE = FileKind(
    "SW-FENCE-DAMAGED",
    "restore the file from a backup; if there is none and no other driver ran after that one, remove it",
)


class StartRecord(msgspec.Struct, frozen=True):
    """What a driver started from."""

    fence: int
    epoch: int
    sha256: str
    semantics: str = "exactly-once"  # of the job from here on
    tracking: str = ""
    seal: str = ""
    params: dict[str, Value] | msgspec.UnsetType = msgspec.UNSET  # of the run; left out if the job has none
    sinks: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # that have a ledger row from here on; left out if none


class Dropped(msgspec.Struct, frozen=True):
    """The components whose state a start has dropped; it counts together with that start."""

    fence: int
    components: tuple[str, ...]
    request: str
    seal: str = ""


class Drop(msgspec.Struct, frozen=True):
    """A request to drop the state of components, or COMPONENT.FIELD. `request` is random: a restart does not drop again."""

    components: tuple[str, ...] = ()
    request: str = ""

    @property
    def whole(self) -> tuple[str, ...]:
        """The components whose state is dropped as a whole."""
        return tuple(name for name in self.components if "." not in name)

    @property
    def fields(self) -> dict[str, frozenset[str]]:
        """Component -> fields that are dropped from its state."""
        return fields_among(self.components)


def fields_among(names: Collection[str]) -> dict[str, frozenset[str]]:
    """Component -> fields, of names that are COMPONENT.FIELD."""
    pairs = [name.partition(".")[::2] for name in names if "." in name]
    return {component: frozenset(one for name, one in pairs if name == component) for component, _ in pairs}


S = TypeVar("S", StartRecord, Dropped)


class StartRecords:
    """The starts in the folder of a job's fences. A file that cannot be read is refused: guessing could bring abandoned
    manifests back.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder

    def write(
        self,
        fence: int,
        epoch: int,
        sha256: str,
        promise: Promise = EXACTLY_ONCE,
        sinks: Sequence[str] = (),
        params: Values = (),
    ) -> None:
        """Recovery is finished: from here on, manifests of lower fences beyond `epoch` do not count."""
        tracking = "" if promise.tracking is None else promise.tracking.value
        registered = tuple(sinks) or msgspec.UNSET
        start = StartRecord(
            fence,
            epoch,
            sha256,
            promise.semantics.value,
            tracking,
            params=dict(params) or msgspec.UNSET,
            sinks=registered,
        )
        self._disk.create(self._path(fence, START), to_bytes(start))

    def write_dropped(self, fence: int, drop: Drop) -> None:
        """Before `write`: the state of these components in manifests of lower fences does not count from then on."""
        dropped = Dropped(fence, drop.components, drop.request)
        self._disk.create(self._path(fence, DROPPED), to_bytes(dropped))

    def numbers(self) -> set[int]:
        """The fences whose drivers finished their recovery."""
        return numbered(self._disk, self._folder, START)

    def all(self) -> dict[int, StartRecord]:
        """Fence -> what its driver started from, in order."""
        return {number: self._read(number, START, StartRecord) for number in sorted(self.numbers())}

    def last(self) -> StartRecord | None:
        starts = self.all()
        return starts[max(starts)] if starts else None

    def promise(self) -> Promise | None:
        """What the last start promised; None if there was none."""
        last = self.last()
        return None if last is None else Promise.of(last.semantics, last.tracking or None)

    def registered(self) -> tuple[str, ...]:
        """The sinks that the last start wrote its fence into."""
        last = self.last()
        return () if last is None or isinstance(last.sinks, msgspec.UnsetType) else last.sinks

    def params(self) -> dict[str, Value]:
        """The parameters of the last run that has started."""
        last = self.last()
        return {} if last is None or isinstance(last.params, msgspec.UnsetType) else last.params

    def has_dropped(self, drop: Drop) -> bool:
        """True if a start has fulfilled this request."""
        return any(dropped.request == drop.request for dropped in self._dropped())

    def dropped_after(self, fence: int) -> frozenset[str]:
        """The components whose state was dropped by starts of higher fences than that."""
        return frozenset(name for dropped in self._dropped() if dropped.fence > fence for name in dropped.components)

    def dropped_by(self) -> dict[str, int]:
        """Component -> the last fence whose start has dropped its state."""
        return {name: dropped.fence for dropped in self._dropped() for name in dropped.components}

    def dropping(self) -> set[int]:
        """The fences that have a file of dropped components. It is never removed: a request is not fulfilled twice."""
        return numbered(self._disk, self._folder, DROPPED)

    def forget(self, below: int, keep: Collection[int]) -> None:
        """Remove the starts of fences below a number, except those to keep."""
        for number in self.numbers():
            if number < below and number not in keep:
                self._disk.remove(self._path(number, START))

    def _dropped(self) -> list[Dropped]:
        """Those that count: a start that was interrupted has dropped nothing."""
        return [self._read(number, DROPPED, Dropped) for number in sorted(self.dropping() & self.numbers())]

    def _read(self, number: int, suffix: str, content: type[S]) -> S:
        path = self._path(number, suffix)
        value = read_sealed(self._disk, path, content, FENCE_FILE)
        if value.fence != number:
            raise damaged(FENCE_FILE, path, f"is that of fence {value.fence}")
        return value

    def _path(self, number: int, suffix: str) -> Path:
        return self._folder / f"{number}{suffix}"


def numbered(disk: Disk, folder: Path, suffix: str) -> set[int]:
    """The numbers of the files NUMBER+suffix in a folder."""
    names = (name.partition(".") for name in disk.names(folder))
    found = (number_of(stem) for stem, dot, rest in names if dot + rest == suffix)
    return {number for number in found if number is not None}
