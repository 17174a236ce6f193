"""A job's folder: identity, plans and manifests. Every write is durable and atomic; most create a name that is never reused.

ROOT/JOB/job.json                               uid and number of key groups
ROOT/JOB/checkpoints/000000000042.plan.json     what epoch 42 reads
ROOT/JOB/checkpoints/000000000042.prepared.json all instances have reported
ROOT/JOB/checkpoints/000000000042.json          every sink has it too: completed
ROOT/JOB/sources.json                           what every source is recognised by
ROOT/JOB/quarantine/FENCE/...                   what the start of that fence could not use, under the path it had
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.components.position import Position
from streamwork.delivery.inbox import WAITING
from streamwork.delivery.letters import QUARANTINE
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.names import Names
from streamwork.epoch.sealed import decode_sealed, read_sealed, to_bytes
from streamwork.errors import Refused
from streamwork.job import Graph
from streamwork.world import EPOCH_DIGITS, Clock, Disk, FileKind, inside, number_of

_log = logging.getLogger(__name__)
T = TypeVar("T", bound=msgspec.Struct)
PLAN, PREPARED, COMPLETED = ".plan.json", ".prepared.json", ".json"
CHECKPOINT_FILE = FileKind(
    "SW-CHECKPOINT-DAMAGED",
    "restore the file from a backup; nothing was changed, and the job does not start from wrong or empty state",
)
COPIES = "copies"  # in quarantine: damaged copies of manifests that count


class Identity(msgspec.Struct, frozen=True):
    """The identity of a job's folder, written once."""

    job: str
    uid: str
    groups: int
    created: float
    seal: str = ""
    origin: str | msgspec.UnsetType = msgspec.UNSET
    """Of a folder that was made from a savepoint: the hash of its manifest. Until the first start is recorded it is half-made."""
    targets: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Of a fork: sink -> its own target, instead of the one in the job file."""


class Marks(msgspec.Struct, frozen=True):
    """The contents of ``sources.json``."""

    marks: dict[str, str]
    seal: str = ""


@dataclass(frozen=True)
class Stored:
    """A manifest as it lies in the folder. `problem` says what is wrong with a copy; without a whole one there is no manifest."""

    epoch: int
    completed: bool
    manifest: Manifest | None
    problem: str = ""


class Store:
    def __init__(self, disk: Disk, root: Path, job: str) -> None:
        self.disk = disk
        self.folder = root / job
        self._checkpoints = self.folder / "checkpoints"
        self.names = Names({})

    def named(self, names: Names) -> Store:
        """The same folder, read in the names that components have now."""
        store = copy.copy(self)
        store.names = names
        return store

    # ---- identity -------------------------------------------------------------------------------------------------

    def identity(self) -> Identity | None:
        path = self.folder / "job.json"
        if not self.disk.exists(path):
            if self.newest_number() > 0:  # manifest 0 alone is a creation that a crash cut short
                raise Refused(
                    "SW-ROOT-DAMAGED", f"{path} is gone but checkpoints are there", "bring job.json back from a copy"
                )
            return None
        return read_sealed(self.disk, path, Identity, CHECKPOINT_FILE)

    def create(self, graph: Graph, uid: str, groups: int, clock: Clock) -> Identity:
        """Make the folder of a new job. Manifest 0, completed and empty, comes first; job.json makes it all count."""
        self.disk.make_folder(self._checkpoints)
        zero = _beginning(uid, graph)
        try:
            self.disk.create(self._path(0, COMPLETED), zero.to_bytes())
        except FileExistsError:  # by a creation that a crash cut short, or that is under way: that one chose the uid
            try:
                zero = self.manifest(0)
            except Refused:  # without job.json it never counted for anything
                self.disk.replace(self._path(0, COMPLETED), zero.to_bytes())
        with contextlib.suppress(FileExistsError):
            self.disk.create(self._path(0, PREPARED), zero.to_bytes())
        self.disk.sync_names(self._checkpoints)  # also those that a killed driver made
        return self._create_identity(Identity(graph.job, zero.uid, groups, clock.now()))

    def create_from(self, graph: Graph, identity: Identity) -> None:
        """Make the folder of a job that begins with a savepoint. What an interrupted creation left never counted."""
        self.disk.make_folder(self._checkpoints)
        self.restore_beginning(graph, identity)
        self.disk.sync_names(self._checkpoints)
        self._create_identity(identity)

    def _create_identity(self, identity: Identity) -> Identity:
        """From here on the folder counts."""
        try:
            self.disk.create(self.folder / "job.json", to_bytes(identity))
        except FileExistsError:
            raise Refused(
                "SW-DRIVER-FENCED",
                f"another driver is creating {self.folder} at this very moment",
                "let only one driver run this job; start again when the other one has stopped",
            ) from None
        return identity

    def restore_beginning(self, graph: Graph, identity: Identity) -> None:
        """Of a job that was never started: write manifest 0 again if it is missing, damaged or of another uid. It holds nothing
        that `job.json` does not; where two drivers created the folder at once, a copy may be of the other one.
        """
        zero = _beginning(identity.uid, graph)
        for suffix in (COMPLETED, PREPARED):
            try:
                mine = self._read(0, suffix, Manifest).uid == identity.uid
            except Refused:
                mine = False
            if not mine:
                self.disk.replace(self._path(0, suffix), zero.to_bytes())

    def sync_names(self) -> None:
        """Make every name durable that is there. A driver that was killed may have left some that a power cut would undo."""
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder, self._checkpoints, *self._folders()):
            self.disk.sync_names(folder)

    # ---- plans and manifests --------------------------------------------------------------------------------------

    def newest_number(self) -> int:
        """The largest epoch number that was ever used, also by what is in quarantine now."""
        return max([0, *self._numbers(PLAN), *self._numbers(PREPARED), *self._numbers(COMPLETED), *self.quarantined()])

    def plans(self) -> list[int]:
        return self._numbers(PLAN)

    def completed(self) -> list[int]:
        return self._numbers(COMPLETED)

    def prepared(self) -> list[int]:
        return self._numbers(PREPARED)

    def write_plan(self, plan: Plan) -> None:
        self.disk.create(self._path(plan.epoch, PLAN), to_bytes(plan))

    def plan(self, epoch: int) -> Plan:
        return self.names.plan(self._read(epoch, PLAN, Plan))

    def write_prepared(self, manifest: Manifest) -> None:
        self.disk.create(self._path(manifest.epoch, PREPARED), manifest.to_bytes())

    def write_completed(self, manifest: Manifest) -> None:
        """The same bytes under the final name; fine if they are there. Refuses if another manifest has the name."""
        path = self._path(manifest.epoch, COMPLETED)
        try:
            self.disk.create(path, manifest.to_bytes())
        except FileExistsError:
            if self.disk.read(path) != manifest.to_bytes():
                raise Refused(
                    "SW-DRIVER-FENCED",
                    f"another driver has completed checkpoint {manifest.epoch} of this job",
                    "let only one driver run this job",
                ) from None

    def manifest(self, epoch: int) -> Manifest:
        """From whichever of its two copies is whole. Refuses if none is."""
        try:
            return self.names.manifest(self._read(epoch, COMPLETED, Manifest))
        except Refused as damaged:
            try:
                return self.names.manifest(self._read(epoch, PREPARED, Manifest))
            except Refused:
                raise damaged from None

    def stored(self) -> list[Stored]:
        """Every manifest that the folder holds, or why it cannot be had; newest number first."""
        copies = {COMPLETED: set(self.completed()), PREPARED: set(self.prepared())}
        found = []
        for epoch in sorted(set.union(*copies.values()), reverse=True):
            manifest, problems = None, []
            for suffix in (COMPLETED, PREPARED):
                if epoch in copies[suffix]:
                    try:
                        manifest = manifest or self.names.manifest(self._read(epoch, suffix, Manifest))
                    except Refused as damaged:
                        problems.append(damaged.cause)
            found.append(Stored(epoch, epoch in copies[COMPLETED], manifest, "; ".join(problems)))
        return found

    def replace_completed(self, fence: int, manifest: Manifest) -> None:
        """Put the good copy in place of a damaged one, which is set aside."""
        self.quarantine(fence, f"checkpoints/{manifest.epoch:012d}{COMPLETED}", under=COPIES)
        self.write_completed(manifest)

    def written_at(self, epoch: int) -> float:
        """When the manifest was written, in seconds since 1970."""
        paths = (self._path(epoch, COMPLETED), self._path(epoch, PREPARED))
        return next(path.stat().st_mtime for path in paths if path.exists())

    # ---- what goes away -------------------------------------------------------------------------------------------

    def remove_manifest(self, epoch: int) -> None:
        """Forget a manifest. After a crash it may be there again, and is forgotten again."""
        for suffix in (COMPLETED, PREPARED):
            self.disk.discard(self._path(epoch, suffix))

    def remove_plans(self, below: int) -> None:
        for epoch in self._numbers(PLAN):
            if epoch < below:
                self.disk.discard(self._path(epoch, PLAN))

    def remove_claims(self, below: int) -> None:
        """Call after `remove_plans`: an attempt whose plan is gone does not write."""
        for name in self.disk.names(self.folder / "claims"):
            epoch = number_of(name.partition("-")[0], EPOCH_DIGITS)
            if epoch is not None and epoch < below:
                self.disk.discard(self.folder / "claims" / name)

    def quarantine(self, fence: int, path: str, under: str = "") -> bool:
        """Set a file aside that a start cannot use. Its path is below the job's folder; False if it is gone."""
        target = inside(self.folder, "/".join(filter(None, (QUARANTINE, str(fence), under, path))))
        if not self.disk.exists(inside(self.folder, path)):
            return False
        self.disk.make_folder(target.parent)
        try:
            self.disk.move(inside(self.folder, path), target)
        except FileNotFoundError:  # another start is at it, too
            return False
        return True

    def quarantine_epoch(self, fence: int, epoch: int) -> None:
        """Set a manifest aside, both copies. Its plan stays."""
        for suffix in (COMPLETED, PREPARED):
            self.quarantine(fence, f"checkpoints/{epoch:012d}{suffix}")

    def quarantined(self) -> dict[int, int]:
        """Epoch -> the fence whose start set its manifest aside."""
        found = {}
        for fence in self.disk.names(self.folder / QUARANTINE):
            for name in self.disk.names(self.folder / QUARANTINE / fence / "checkpoints"):
                epoch, by = number_of(name.partition(".")[0], EPOCH_DIGITS), number_of(fence)
                if epoch is not None and by is not None:
                    found[epoch] = by
        return found

    def set_aside(self, epoch: int) -> Manifest | None:
        """The manifest of an epoch that a start has set aside; None if there is none, or no copy is whole."""
        for fence in self.disk.names(self.folder / QUARANTINE):
            for suffix in (COMPLETED, PREPARED):
                path = self.folder / QUARANTINE / fence / "checkpoints" / f"{epoch:012d}{suffix}"
                with contextlib.suppress(Refused):
                    return self.names.manifest(read_sealed(self.disk, path, Manifest, CHECKPOINT_FILE))
        return None

    def clean_up(self, fence: int, named: Collection[str], done: int) -> None:
        """Remove the state files and outputs that nothing names: those of lower fences, and my own of epochs up to `done`. And
        files that a process was writing when it died, in all of the job's folders.
        """
        self.disk.remove_abandoned(self.folder, below=True)
        for path, epoch, written_by in self._files():
            if path not in named and (written_by < fence or (written_by == fence and epoch <= done)):
                self.disk.discard(inside(self.folder, path))

    def discard_files(self, paths: Collection[str]) -> None:
        for path in paths:
            self.disk.discard(inside(self.folder, path))

    def files_of(self, epoch: int) -> list[str]:
        """The state files and outputs of an epoch that are there, named by a manifest or not."""
        return sorted(path for path, number, _ in self._files() if number == epoch)

    def _files(self) -> Iterator[tuple[str, int, int]]:
        """(path below the folder, its epoch, the fence that wrote it) of every state file and output."""
        for folder in self._folders():
            for name in self.disk.names(folder):
                stem, _, rest = name.partition("-")
                epoch, written_by = number_of(stem, EPOCH_DIGITS), number_of(rest.partition("-")[0])
                if epoch is not None and written_by is not None and name.endswith((".parquet", ".arrow", ".json")):
                    yield (folder / name).relative_to(self.folder).as_posix(), epoch, written_by

    def _folders(self) -> list[Path]:
        """Every folder of state files and outputs, and those above them."""
        outputs, state, waiting = self.folder / "outputs", self.folder / "state", self.folder / WAITING
        components = [state / component for component in self.disk.names(state)]
        found = [waiting, outputs, *(outputs / sink for sink in self.disk.names(outputs)), state, *components]
        return found + [folder / instance for folder in components for instance in self.disk.names(folder)]

    # ---- sources --------------------------------------------------------------------------------------------------

    def sources(self) -> dict[str, str]:
        """SOURCE/PARTITION -> what it is recognised by (`epoch.identities`). A damaged file says nothing, like one that is gone:
        then what is there now is recorded.
        """
        path = self.folder / "sources.json"
        if not self.disk.exists(path):
            return {}
        data = self.disk.read(path)
        try:
            return self.names.marks(decode_sealed(path, data, Marks, CHECKPOINT_FILE).marks)
        except Refused as damaged:
            try:  # as an older version wrote it: SOURCE -> mark
                return msgspec.json.decode(data, type=dict[str, str])
            except (msgspec.DecodeError, UnicodeDecodeError):
                _log.warning("%s: the identities of the sources are recorded again", damaged.cause)
                return {}

    def write_sources(self, known: dict[str, str]) -> None:
        self.disk.replace(self.folder / "sources.json", to_bytes(Marks(known)))

    # ---- reading --------------------------------------------------------------------------------------------------

    def _read(self, epoch: int, suffix: str, kind: type[T]) -> T:
        return read_sealed(self.disk, self._path(epoch, suffix), kind, CHECKPOINT_FILE)

    def _numbers(self, suffix: str) -> list[int]:
        names = (name.partition(".") for name in self.disk.names(self._checkpoints))
        found = (number_of(stem, EPOCH_DIGITS) for stem, _, rest in names if f".{rest}" == suffix)
        return [epoch for epoch in found if epoch is not None]

    def _path(self, epoch: int, suffix: str) -> Path:
        return self._checkpoints / f"{epoch:012d}{suffix}"


def _beginning(uid: str, graph: Graph) -> Manifest:
    """Manifest 0: nothing was read, nothing is kept."""
    return Manifest(0, 0, "", 0, uid, Position(), {}, {}, {}, graph.fingerprint)
