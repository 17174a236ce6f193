"""`NewSavepoint`: writes a savepoint that has the positions of a checkpoint or savepoint, and other state in some components.

    1  begin   `begun.json`, created exclusively; the savepoint is registered with the sources, so that a log keeps its input
    2  copy    every file of the base but the state of the components that changed; these are written as one snapshot per instance
    3  seal    `savepoint.json`, last

The base is only read. The manifest is copied byte for byte, so that ledgers recognise the new savepoint as they do the base: which
files hold the state is said by `savepoint.json` alone. An error leaves nothing. What a crash leaves after 1 and in 2 is half-made:
no reader takes it, and `savepoint drop` removes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version

import msgspec
import pyarrow as pa

from streamwork.components import ReadProgress
from streamwork.delivery.inbox import INBOX_FILE
from streamwork.delivery.letters import STAGED_LETTERS
from streamwork.epoch.savepoints import FOLDER, Begun, Savepoint, SavepointRecord, SavepointWriter
from streamwork.epoch.savepoints.record import SAVEPOINT_FILE, StateChains
from streamwork.epoch.savepoints.saving import Saver, consumer_title
from streamwork.epoch.start_records import StartRecords
from streamwork.epoch.store import Store
from streamwork.errors import Refused, StreamworkError
from streamwork.job import Graph
from streamwork.state.chain import SNAPSHOT
from streamwork.state.files import STATE_FILE
from streamwork.statefiles.point import StatePoint
from streamwork.statefiles.row_check import RowCheck
from streamwork.world import FileKind, FileRef


@dataclass(frozen=True)
class NewSavepoint:
    """What is to be written. `changed` are the rows of components, `checks` know their files."""

    graph: Graph
    store: Store  # of the job that it will belong to
    base: StatePoint
    changed: Mapping[str, pa.Table]
    checks: Mapping[str, RowCheck]
    stem: str  # fence and attempt, of the names of state files
    origin: str  # how it was made

    def write(self, begun: Begun) -> SavepointRecord:
        """1 to 3. Refuses a name that is taken."""
        base = self.base.savepoint
        return self._of_checkpoint(begun) if base is None else self._of_savepoint(base, begun)

    def _of_savepoint(self, base: Savepoint, begun: Begun) -> SavepointRecord:
        base.check()
        writer = SavepointWriter.begin(self.store.disk, self.store.folder / FOLDER / begun.name, begun)
        with self._undone(writer):
            self._register(begun)  # 1
            record = base.record
            state = self._written(writer)  # 2
            replaced = {ref.path for name in state for chain in record.state.get(name, {}).values() for ref in chain}
            for path, ref in record.files.items():
                if path not in replaced:
                    writer.copy(base.folder, ref, _kind(record, ref))
            return writer.seal(  # 3
                msgspec.structs.replace(
                    record,
                    name=begun.name,
                    created=begun.created,
                    by=begun.by,
                    note=begun.note,
                    written_by=version("streamwork"),
                    state={**record.state, **state},
                    consumer=begun.consumer,
                    origin=self.origin,
                )
            )

    def _of_checkpoint(self, begun: Begun) -> SavepointRecord:
        """The job may run, and prune the checkpoint while it is copied."""
        saver = Saver(self.graph, self.store, lambda: self.stem)
        starts = StartRecords(self.store.disk, self.store.folder / "fences")
        manifest = self.base.manifest
        captured = saver.capture(self.base.identity, manifest, starts.dropped_after(manifest.fence))
        writer = saver.begin(self.store.folder / FOLDER / begun.name, begun, captured)  # 1
        try:
            with self._undone(writer):
                return saver.write(writer, captured, self._written(writer), self.origin)  # 2, 3
        except (Refused, FileNotFoundError) as error:
            if manifest.epoch in self.store.completed():
                raise
            raise Refused(
                "SW-CHECKPOINT-UNKNOWN",
                f"checkpoint {manifest.epoch} was pruned while it was read: the job runs",
                "create a savepoint first (`streamwork savepoint create JOBFILE NAME`), and edit that one; nothing was written",
            ) from error

    @contextlib.contextmanager
    def _undone(self, writer: SavepointWriter) -> Iterator[None]:
        """An error leaves nothing of the savepoint."""
        try:
            yield
        except (StreamworkError, OSError):
            for node in self.graph.planned:
                with contextlib.suppress(StreamworkError, OSError):
                    node.component.forget(writer.begun.consumer)
            with contextlib.suppress(OSError):
                self.store.disk.remove_tree(writer.folder)
            raise

    def _written(self, writer: SavepointWriter) -> StateChains:
        """The files of the components that changed. Every instance of the base stays, with or without rows."""
        found: StateChains = {}
        for component, table in self.changed.items():
            check = self.checks[component]
            rows = check.by_instance(table)
            chains: dict[str, tuple[FileRef, ...]] = {str(instance): () for instance in range(check.instances)}
            for instance, mine in rows.items():
                path = f"state/{component}/{instance}/{self.base.manifest.epoch:012d}-{self.stem}{SNAPSHOT}"
                chains[instance] = (writer.files.write(path, mine, check.rows.key_names),)
            found[component] = chains
        return found

    def _register(self, begun: Begun) -> None:
        positions = self.base.manifest.positions
        for node in self.graph.planned:
            at = positions.of(node.id)
            node.component.keep(ReadProgress(begun.consumer, consumer_title(begun), node.id, at, at))


def _kind(record: SavepointRecord, ref: FileRef) -> FileKind:
    """How a damaged file is reported."""
    if ref in record.others:
        return SAVEPOINT_FILE
    if ref in record.inbox or ref in record.waiting:
        return INBOX_FILE
    if any(ref == letter for letters in record.letters.values() for letter in letters.values()):
        return STAGED_LETTERS
    return STATE_FILE
