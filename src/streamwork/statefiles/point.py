"""`StatePoint`: a checkpoint or a savepoint whose state is read.

    checkpoint:41        a checkpoint that the job's folder still holds
    savepoint:NAME       a savepoint of the job
    PATH                 the folder of a savepoint, which may lie anywhere

Without any of these it is the newest completed checkpoint that counts (`epoch.recovery.catalogue`). Reading takes no fence and
writes nothing, so the job may run meanwhile. It prunes old checkpoints: `reading` begins again when the one being read was pruned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from streamwork.components import Position
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.recovery.catalogue import Catalogue
from streamwork.epoch.savepoints import FOLDER, GraphRecord, Savepoint
from streamwork.epoch.start_records import StartRecords
from streamwork.epoch.store import Identity, Store
from streamwork.errors import Refused, WrongUse
from streamwork.job import Graph
from streamwork.job.names import check_name
from streamwork.job.params import Value
from streamwork.state import FileChains, StateFiles
from streamwork.world import Disk

T = TypeVar("T")
CHECKPOINT, SAVEPOINT = "checkpoint:", "savepoint:"
ATTEMPTS = 5
"""How often reading begins again when the checkpoint was pruned meanwhile."""
SYNTAX = "write checkpoint:N, savepoint:NAME, or the path of a savepoint's folder"


class At(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `--at` names."""

    checkpoint: int | None = None
    savepoint: str = ""
    path: str = ""

    @classmethod
    def parse(cls, text: str | None) -> At:
        """Without text, the newest checkpoint."""
        if text is None:
            return cls()
        if text.startswith(CHECKPOINT):
            number = text.removeprefix(CHECKPOINT)
            if not (number.isascii() and number.isdecimal() and len(number) < 13):
                raise WrongUse("SW-USAGE", f"{text!r} names no checkpoint", SYNTAX)
            return cls(checkpoint=int(number))
        if text.startswith(SAVEPOINT):
            return cls(savepoint=check_name(text.removeprefix(SAVEPOINT), "savepoint"))
        if not Path(text).is_dir():
            raise WrongUse("SW-USAGE", f"there is no folder {text!r}", SYNTAX)
        return cls(path=str(Path(text).absolute()))

    @property
    def newest(self) -> bool:
        return self == At()


@dataclass(frozen=True)
class StatePoint:
    """The state of all components of a job at one checkpoint."""

    title: str  # checkpoint 41, savepoint before-v2
    identity: Identity
    manifest: Manifest
    chains: FileChains
    files: StateFiles
    graph: Graph | None  # of the job file, if one was given
    record: GraphRecord | None  # of a savepoint: the graph as it was
    savepoint: Savepoint | None = None

    @property
    def positions(self) -> Position:
        return self.manifest.positions

    @property
    def params(self) -> dict[str, Value]:
        return {} if self.record is None else self.record.params

    @property
    def components(self) -> list[str]:
        """Every component that has state here, or would have it, in the order of the graph."""
        if self.graph is not None:
            known = [node.id for node in self.graph.stateful]
        elif self.record is not None:
            known = [node.id for node in self.record.nodes if node.keeps is not None]
        else:
            known = []
        return [*known, *sorted(self.chains.keys() - set(known))]


@dataclass(frozen=True)
class Places:
    """Where the states of one job are found."""

    disk: Disk
    root: Path
    job: str
    graph: Graph | None = None

    @property
    def store(self) -> Store:
        return Store(self.disk, self.root, self.job)

    def open(self, at: At) -> StatePoint:
        """The state at a checkpoint or savepoint. Refuses one that there is not."""
        if at.path or at.savepoint:
            return self._savepoint(Path(at.path) if at.path else self.store.folder / FOLDER / at.savepoint)
        store = self.store
        identity = store.identity()
        if identity is None:
            raise WrongUse(
                "SW-ROOT-EMPTY",
                f"{self.root} has no folder of a job {self.job!r}",
                "check --root and the job's name; has the job run yet?",
            )
        manifest = self._manifest(store, identity, at)
        dropped = StartRecords(store.disk, store.folder / "fences").dropped_after(manifest.fence)
        chains = {name: chains for name, chains in manifest.components.items() if name not in dropped}
        files = StateFiles(store.disk, store.folder)
        return StatePoint(f"checkpoint {manifest.epoch}", identity, manifest, chains, files, self.graph, None)

    def _savepoint(self, folder: Path) -> StatePoint:
        found = Savepoint.open(self.disk, folder)
        title = f"savepoint {found.record.name}"
        return StatePoint(
            title, found.identity, found.manifest, found.chains, found.files, self.graph, found.graph, found
        )

    def _manifest(self, store: Store, identity: Identity, at: At) -> Manifest:
        starts = StartRecords(store.disk, store.folder / "fences").all()
        stored = [s for s in store.stored() if s.manifest is None or s.manifest.uid == identity.uid]
        catalogue = Catalogue(stored, starts, Unchecked())
        counting = [one for one in catalogue.newest_first if catalogue.is_completed(one)]
        for manifest in counting:
            if at.checkpoint in (None, manifest.epoch):
                return manifest
        damaged = [why for epoch, why in catalogue.unreadable if at.checkpoint in (None, epoch)]
        if damaged:
            raise Refused(
                "SW-CHECKPOINT-DAMAGED", damaged[0], "read another checkpoint or a savepoint: --at; nothing was changed"
            )
        known = ", ".join(str(one.epoch) for one in counting) or "none"
        raise WrongUse(
            "SW-CHECKPOINT-UNKNOWN",
            f"job {self.job} has no completed checkpoint {at.checkpoint} (kept are: {known})",
            "`streamwork checkpoints job.py` lists them; a savepoint is kept until it is dropped",
        )

    def reading(self, at: At, read: Callable[[StatePoint], T]) -> T:
        """What `read` finds there. It is called again, with what is there then, if the checkpoint was pruned while it read."""
        for _ in range(ATTEMPTS - 1):
            point: StatePoint | None = None
            try:
                point = self.open(at)
                return read(point)
            except Refused:
                if point is not None and (point.savepoint is not None or self._is_kept(point.manifest)):
                    raise
        return read(self.open(at))

    def _is_kept(self, manifest: Manifest) -> bool:
        return manifest.epoch in self.store.completed()


class Unchecked:
    """The health of files that are checked when they are read."""

    def state_problem(self, manifest: Manifest) -> str:
        return ""

    def staged_problem(self, manifest: Manifest, sink: str) -> str:
        return ""
