"""`Origin`: what a start begins from by choice: a savepoint, or a kept checkpoint of the job itself.

checkpoint:42        of the job's own folder
checkpoint:newest
savepoint:NAME       of the job's own folder
PATH                 the folder of a savepoint, which may lie anywhere
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from streamwork.components import Position
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.names import Names
from streamwork.epoch.recovery.verify import Verifier
from streamwork.epoch.savepoints.record import FOLDER, SAVEPOINT_FILE, SOURCES
from streamwork.epoch.savepoints.savepoint import Savepoint
from streamwork.epoch.sealed import decode_sealed
from streamwork.epoch.start_records import StartRecords
from streamwork.epoch.store import Identity, Marks, Store
from streamwork.errors import Refused, WrongUse
from streamwork.job.names import check_name
from streamwork.job.semantics import Promise
from streamwork.state import FileChains
from streamwork.world import FileRef

CHECKPOINT, SAVEPOINT, NEWEST = "checkpoint:", "savepoint:", "newest"


@dataclass(frozen=True)
class Origin:
    """What is restored, checked: every file of it is sound."""

    name: str  # in messages: "savepoint before-v2"
    folder: Path  # that its files are below
    identity: Identity
    manifest: Manifest
    chains: FileChains
    promise: Promise
    waiting: tuple[FileRef, ...]
    inbox: tuple[FileRef, ...] = ()  # besides what is in the job's folder
    sources: dict[str, str] = field(default_factory=dict)  # what the inputs were recognised by
    beyond: Position = field(default_factory=Position)

    def named(self, names: Names) -> Origin:
        """The origin in the names that components have now."""
        manifest, chains = names.manifest(self.manifest), names.components(self.chains)
        return replace(self, manifest=manifest, chains=chains, sources=names.marks(self.sources))

    @classmethod
    def find(cls, store: Store, starts: StartRecords, text: str) -> Origin:
        """The origin that `--from` names, for a job with this folder."""
        if text.startswith(CHECKPOINT):
            return cls.of_checkpoint(store, starts, text.removeprefix(CHECKPOINT))
        return cls.of_savepoint(savepoint_at(store, text))

    @classmethod
    def of_savepoint(cls, savepoint: Savepoint) -> Origin:
        """Reads every file of it."""
        savepoint.check()
        record, path = savepoint.record, savepoint.folder / SOURCES
        marks: dict[str, str] = {}
        if SOURCES in record.files:
            data = savepoint.disk.read(path)
            marks = decode_sealed(path, data, Marks, SAVEPOINT_FILE).marks
        return cls(
            name=f"savepoint {record.name}",
            folder=savepoint.folder,
            identity=savepoint.identity,
            manifest=savepoint.manifest,
            chains=savepoint.chains,
            promise=Promise.of(record.semantics, record.tracking or None),
            waiting=record.waiting,
            inbox=record.inbox,
            sources=marks,
            beyond=record.beyond,
        )

    @classmethod
    def of_checkpoint(cls, store: Store, starts: StartRecords, number: str) -> Origin:
        identity = store.identity()
        kept = store.completed()
        if identity is None or not (number == NEWEST or (number.isdecimal() and int(number) in kept)):
            raise WrongUse(
                "SW-CHECKPOINT-UNKNOWN",
                f"{store.folder} has no completed checkpoint {number}",
                "`streamwork checkpoints job.py` lists those that are kept; a savepoint keeps a checkpoint for longer",
            )
        manifest = store.manifest(max(kept) if number == NEWEST else int(number))
        verifier, dropped = Verifier(store), starts.dropped_after(manifest.fence)
        chains = {
            name: {instance: verifier.sound_chain(chain) for instance, chain in instances.items()}
            for name, instances in manifest.components.items()
            if name not in dropped
        }
        if problem := verifier.state_problem(manifest):
            raise Refused(
                "SW-CHECKPOINT-DAMAGED",
                f"checkpoint {manifest.epoch} cannot be restored: {problem}",
                "choose another checkpoint or a savepoint, or restore the file from a backup; nothing was changed",
            )
        return cls(
            name=f"checkpoint {manifest.epoch}",
            folder=store.folder,
            identity=identity,
            manifest=manifest,
            chains={name: {i: tuple(chain or ()) for i, chain in mine.items()} for name, mine in chains.items()},
            promise=starts.promise() or Promise.of("exactly-once", None),
            waiting=manifest.failed,
            sources=store.sources(),
        )


def savepoint_at(store: Store, text: str) -> Savepoint:
    """`savepoint:NAME` or PATH."""
    if text.startswith(SAVEPOINT):
        folder = store.folder / FOLDER / check_name(text.removeprefix(SAVEPOINT), "savepoint")
    else:
        folder = Path(text).absolute()
    return Savepoint.open(store.disk, folder)
