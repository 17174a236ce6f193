"""The last step of every savepoint, however it was made: what all have in common, and `savepoint.json`, which names all files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

from msgspec import UNSET

from streamwork.components import Position
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.savepoints.graph_record import GraphRecord
from streamwork.epoch.savepoints.record import (
    FORMAT,
    GRAPH,
    JOB,
    Expected,
    SavepointRecord,
    StateChains,
    manifest_path,
)
from streamwork.epoch.savepoints.writer import SavepointWriter
from streamwork.epoch.sealed import to_bytes
from streamwork.epoch.store import Identity
from streamwork.job import Graph
from streamwork.world import FileRef


@dataclass(frozen=True)
class Content:
    """What was written into a savepoint. Only the state is never missing."""

    state: StateChains
    waiting: tuple[FileRef, ...] = ()
    letters: dict[str, dict[str, FileRef]] = field(default_factory=dict)
    inbox: tuple[FileRef, ...] = ()
    others: tuple[FileRef, ...] = ()
    ledgers: Mapping[str, Expected] = field(default_factory=dict)
    beyond: Position = field(default_factory=Position)
    origin: str = ""  # how it was made, if it was not taken of a running job


def seal(
    writer: SavepointWriter, graph: Graph, identity: Identity, manifest: Manifest, content: Content
) -> SavepointRecord:
    """From now on readers take the savepoint."""
    begun, record = writer.begun, GraphRecord.of(graph)
    common = (
        writer.add(JOB, to_bytes(identity)),
        writer.add(manifest_path(manifest.epoch), manifest.to_bytes()),
        writer.add_sealed(GRAPH, record),
    )
    return writer.seal(
        SavepointRecord(
            format=FORMAT,
            name=begun.name,
            created=begun.created,
            by=begun.by,
            note=begun.note,
            written_by=version("streamwork"),
            job=identity.job,
            uid=identity.uid,
            groups=identity.groups,
            epoch=manifest.epoch,
            fence=manifest.fence,
            manifest_sha256=manifest.sha256,
            semantics=record.semantics,
            tracking=record.tracking,
            positions=manifest.positions,
            beyond=content.beyond,
            parallelism={node.id: node.parallelism for node in graph.nodes},
            ledgers=dict(content.ledgers),
            state=content.state,
            waiting=content.waiting,
            letters=content.letters,
            inbox=content.inbox,
            others=(*common, *content.others),
            consumer=begun.consumer,
            params=record.params,
            origin=content.origin or UNSET,
        )
    )
