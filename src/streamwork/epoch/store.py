"""A job's folder: identity, fences, plans and manifests. Every write is durable and atomic; most create a name for
ever.

ROOT/JOB/job.json                               uid and number of key groups
ROOT/JOB/fences/F.json                          one for each start
ROOT/JOB/checkpoints/000000000042.plan.json     what epoch 42 reads
ROOT/JOB/checkpoints/000000000042.prepared.json all instances have reported
ROOT/JOB/checkpoints/000000000042.json          every sink has it too: completed
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.epoch.manifest import Manifest, Plan, to_bytes
from streamwork.errors import Refused
from streamwork.job import Graph
from streamwork.world import Clock, Disk

T = TypeVar("T", bound=msgspec.Struct)
PLAN, PREPARED, COMPLETED = ".plan.json", ".prepared.json", ".json"


class Identity(msgspec.Struct, frozen=True):
    """Who this job's folder belongs to: made once, when the folder is."""

    job: str
    uid: str
    groups: int
    created: float


class Fence(msgspec.Struct, frozen=True):
    """One start of a driver."""

    fence: int
    pid: int
    host: str
    started: float


class Store:
    def __init__(self, disk: Disk, root: Path, job: str) -> None:
        self.disk = disk
        self.folder = root / job
        self._checkpoints = self.folder / "checkpoints"
        self._fences = self.folder / "fences"

    def identity(self) -> Identity | None:
        path = self.folder / "job.json"
        if not self.disk.exists(path):
            if self.newest_number() > 0:  # manifest 0 alone is a creation that a crash cut short
                raise Refused(
                    "SW-ROOT-DAMAGED", f"{path} is gone but checkpoints are there", "bring job.json back from a copy"
                )
            return None
        return _decode(path, self.disk.read(path), Identity)

    def create(self, graph: Graph, uid: str, groups: int, clock: Clock) -> Identity:
        """Make the folder of a new job. Manifest 0, completed and empty, comes first; job.json makes it all count."""
        self.disk.make_folder(self._checkpoints)
        self.disk.make_folder(self._fences)
        zero = Manifest(0, 0, "", 0, uid, {}, {}, {}, {}, graph.fingerprint)
        try:
            self.disk.create(self._path(0, COMPLETED), zero.to_bytes())
        except (
            FileExistsError
        ):  # of a creation that a crash cut short, or that is under way: whoever wrote it chose the uid
            uid = self.read_completed(0).uid
        identity = Identity(graph.job, uid, groups, clock.now())
        try:
            self.disk.create(self.folder / "job.json", to_bytes(identity))
        except FileExistsError:
            raise Refused(
                "SW-DRIVER-FENCED",
                f"another driver is creating {self.folder} at this very moment",
                "let only one driver run this job; start again when the other one has stopped",
            ) from None
        return identity

    def new_fence(self, clock: Clock, floor: int = 0) -> Fence:
        """Create the next fence, exclusively; above `floor`, which some sink has seen."""
        self.disk.make_folder(self._fences)
        taken = [int(name.removesuffix(".json")) for name in self.disk.names(self._fences) if name[:-5].isdigit()]
        number = max([floor, *taken]) + 1
        while True:
            fence = Fence(number, os.getpid(), socket.gethostname(), clock.now())
            try:
                self.disk.create(self._fences / f"{number}.json", to_bytes(fence))
            except FileExistsError:
                number += 1
                continue
            return fence

    def sources(self) -> dict[str, str]:
        """Source id -> what it was recognised by when it was last read."""
        path = self.folder / "sources.json"
        if not self.disk.exists(path):
            return {}
        try:
            return msgspec.json.decode(self.disk.read(path), type=dict[str, str])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _damaged(path, f"cannot be read ({error})") from None

    def write_sources(self, known: dict[str, str]) -> None:
        self.disk.replace(self.folder / "sources.json", msgspec.json.encode(known, order="sorted") + b"\n")

    def clean_up(self, fence: int) -> None:
        """Remove what drivers of lower fences wrote for epochs that never became a manifest."""
        kept = {*self._numbers(PREPARED), *self._numbers(COMPLETED)}
        folders = [self.folder / "outputs" / sink for sink in self.disk.names(self.folder / "outputs")]
        for component in self.disk.names(self.folder / "state"):
            folder = self.folder / "state" / component
            folders += [folder / instance for instance in self.disk.names(folder)]
        for folder in folders:
            for name in self.disk.names(folder):
                epoch, _, rest = name.partition("-")
                written_by = rest.partition("-")[0]
                if epoch.isdigit() and written_by.isdigit() and int(epoch) not in kept and int(written_by) < fence:
                    self.disk.remove(folder / name)

    def newest_number(self) -> int:
        """The largest epoch number that was ever used: by a plan or by a manifest."""
        return max(self._numbers(PLAN) + self._numbers(PREPARED) + self._numbers(COMPLETED), default=0)

    def completed(self) -> list[int]:
        return self._numbers(COMPLETED)

    def prepared(self) -> list[int]:
        return self._numbers(PREPARED)

    def write_plan(self, plan: Plan) -> None:
        self.disk.create(self._path(plan.epoch, PLAN), to_bytes(plan))

    def plan(self, epoch: int) -> Plan:
        return self._read(epoch, PLAN, Plan)

    def write_prepared(self, manifest: Manifest) -> None:
        self.disk.create(self._path(manifest.epoch, PREPARED), manifest.to_bytes())

    def write_completed(self, manifest: Manifest) -> None:
        self.disk.create(self._path(manifest.epoch, COMPLETED), manifest.to_bytes())

    def read_prepared(self, epoch: int) -> Manifest:
        return self._read(epoch, PREPARED, Manifest)

    def read_completed(self, epoch: int) -> Manifest:
        return self._read(epoch, COMPLETED, Manifest)

    def written_at(self, epoch: int) -> float:
        """When the manifest was written, for people."""
        paths = (self._path(epoch, COMPLETED), self._path(epoch, PREPARED))
        return next(path.stat().st_mtime for path in paths if path.exists())

    def _read(self, epoch: int, suffix: str, kind: type[T]) -> T:
        path = self._path(epoch, suffix)
        try:
            data = self.disk.read(path)
        except FileNotFoundError:
            raise _damaged(path, "is missing") from None
        value = _decode(path, data, kind)
        # A manifest's hash is that of its bytes, so bytes that do not come out again as they went in are damage.
        if hashlib.sha256(data).digest() != hashlib.sha256(to_bytes(value)).digest():
            raise _damaged(path, "was changed")
        return value

    def _numbers(self, suffix: str) -> list[int]:
        names = (name.partition(".") for name in self.disk.names(self._checkpoints))
        return [int(stem) for stem, _, rest in names if f".{rest}" == suffix and stem.isdigit()]

    def _path(self, epoch: int, suffix: str) -> Path:
        return self._checkpoints / f"{epoch:012d}{suffix}"


def _decode(path: Path, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, f"cannot be read ({error})") from None


def damaged_manifest(store: Store, epoch: int, what: str) -> Refused:
    return _damaged(store.folder / "checkpoints" / f"{epoch:012d}{COMPLETED}", what)


def _damaged(path: Path, what: str) -> Refused:
    return Refused(
        "SW-CHECKPOINT-DAMAGED",
        f"{path} {what}",
        "bring the file back from a copy; nothing was changed, and the job does not start from wrong or empty state",
    )
