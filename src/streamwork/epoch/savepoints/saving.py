"""Saving: a checkpoint of a job is copied into a savepoint, while the checkpoint is kept from pruning.

    1  capture  in the foreground, right behind a checkpoint: what changes afterwards is read
    2  begin    `begun.json`, and the savepoint's registration with the sources, so that a log keeps the events behind it
    3  copy     in the background: state files, chain by chain, as one snapshot; waiting events, dead letters, the inbox
    4  seal     `savepoint.json`, last

What a crash leaves: after 2 and in 3 a half-made savepoint, which no reader takes (`epoch.savepoints.writer`). Nothing of it
changes the job's own files, so the next start does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamwork.components import Position, ReadProgress, Sink
from streamwork.delivery import Inbox
from streamwork.delivery.inbox import INBOX_FILE, taken_key
from streamwork.delivery.letters import STAGED_LETTERS
from streamwork.engine.instance import row_format
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.savepoints.record import SOURCES, Begun, Expected, SavepointRecord, StateChains
from streamwork.epoch.savepoints.sealing import Content, seal
from streamwork.epoch.savepoints.writer import SavepointWriter
from streamwork.epoch.store import Identity, Store
from streamwork.errors import Refused
from streamwork.job import Graph
from streamwork.state import FileChain, StateFiles, compaction, ways
from streamwork.state.files import STATE_FILE, conformed
from streamwork.state.merge import merge
from streamwork.world import FileRef


@dataclass(frozen=True)
class Captured:
    """What a savepoint will hold: immutable, so that it can be copied while the job goes on."""

    identity: Identity
    manifest: Manifest
    beyond: Position
    components: Mapping[str, Mapping[str, tuple[FileRef, ...]]]  # without state that was dropped
    inbox: tuple[str, ...]  # paths below the job's folder
    sources: bytes | None  # the content of `sources.json`


class Saver:
    """Makes savepoints of one job."""

    def __init__(self, graph: Graph, store: Store, new_stem: Callable[[], str]) -> None:
        """`new_stem` gives names that were never used before: fence and attempt."""
        self._graph = graph
        self._store = store
        self._new_stem = new_stem

    def capture(
        self,
        identity: Identity,
        manifest: Manifest,
        dropped: frozenset[str] = frozenset(),
        beyond: Position | None = None,
    ) -> Captured:
        """1. Right behind the checkpoint. `dropped` are components whose state in it does not count; `beyond` is how far its input
        may have been processed already, under at-most-once.
        """
        path = self._store.folder / SOURCES
        sources = self._store.disk.read(path) if self._store.disk.exists(path) else None
        components = {name: chains for name, chains in manifest.components.items() if name not in dropped}
        return Captured(identity, manifest, beyond or Position(), components, self._inbox_files(manifest), sources)

    def _inbox_files(self, manifest: Manifest) -> tuple[str, ...]:
        """All numbered files, for their ids and numbers; and what sources without offsets gave that the checkpoint does not
        account for.
        """
        inbox = Inbox(self._store.disk, self._store.folder)
        accounted = {taken_key(path) for path in manifest.taken}
        lost = [node.id for node in self._graph.polled if not getattr(node.component, "replayable", False)]
        newest = {
            one.key: one.path
            for source in lost
            for one in sorted(inbox.taken(source, manifest.fence), key=lambda one: one.fence)
            if one.key not in accounted
        }
        return (*(f"inbox/{number:012d}.parquet" for number in inbox.numbers()), *sorted(newest.values()))

    def begin(self, folder: Path, begun: Begun, captured: Captured) -> SavepointWriter:
        """2. Refuses a name that is taken."""
        writer = SavepointWriter.begin(self._store.disk, folder, begun)
        if begun.consumer:
            positions = captured.manifest.positions
            for node in self._graph.planned:
                at = positions.of(node.id)
                node.component.keep(ReadProgress(begun.consumer, consumer_title(begun), node.id, at, at))
        return writer

    def write(
        self, writer: SavepointWriter, captured: Captured, instead: StateChains | None = None, origin: str = ""
    ) -> SavepointRecord:
        """3, 4. `instead` has the files of components whose state was written already, and `origin` says how it was made."""
        manifest, folder, graph = captured.manifest, self._store.folder, self._graph
        ledgered = [n.id for n in graph.sinks if isinstance(n.component, Sink) and n.component.kind.keeps_ledger]
        expected = Expected(manifest.positions, manifest.sha256)
        content = Content(
            state=self._state(writer, captured, instead or {}),
            waiting=tuple(writer.copy(folder, ref, INBOX_FILE) for ref in manifest.failed),
            letters={
                component: {by: writer.copy(folder, ref, STAGED_LETTERS) for by, ref in staged.items()}
                for component, staged in manifest.letters.items()
            },
            inbox=tuple(writer.add(path, self._store.disk.read(folder / path)) for path in captured.inbox),
            others=() if captured.sources is None else (writer.add(SOURCES, captured.sources),),
            ledgers=dict.fromkeys(ledgered, expected) if graph.promise.exactly_once else {},
            beyond=captured.beyond,
            origin=origin,
        )
        return seal(writer, graph, captured.identity, manifest, content)

    def _state(self, writer: SavepointWriter, captured: Captured, instead: StateChains) -> StateChains:
        return instead | {
            component: {
                instance: self._chain(writer, captured.identity.groups, component, chain)
                for instance, chain in instances.items()
            }
            for component, instances in captured.components.items()
            if component not in instead
        }

    def _chain(self, writer: SavepointWriter, groups: int, component: str, chain: FileChain) -> tuple[FileRef, ...]:
        """The state of one instance, by the first way to read it whose files are sound. Refuses if there is none."""
        trouble: Refused | None = None
        for way in ways(chain):
            try:
                return self._snapshot(writer, groups, component, way)
            except Refused as damaged:
                trouble = trouble or damaged
        if trouble is not None:
            raise trouble
        return ()

    def _snapshot(self, writer: SavepointWriter, groups: int, component: str, way: FileChain) -> tuple[FileRef, ...]:
        """One file, if the state has keys or is one file already; none, if there is no state."""
        rows = row_format(self._graph, self._graph[component], groups)
        if len(way) < 2 or not rows.key_names:
            return tuple(writer.copy(self._store.folder, ref, STATE_FILE) for ref in way)
        files = StateFiles(self._store.disk, self._store.folder)
        tables = [conformed(rows, ref, files.read(ref)) for ref in way]
        path = compaction.snapshot_path(way, self._new_stem())
        return (writer.files.write(path, merge(tables, rows.key_names), rows.key_names),)


def consumer_title(begun: Begun) -> str:
    """How a log shows the savepoint among its consumers."""
    return f"savepoint {begun.name}"
