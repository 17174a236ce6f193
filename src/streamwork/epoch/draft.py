"""The manifest of an epoch while it is put together: from the reports, and from what participants contribute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from streamwork.components import Position
from streamwork.delivery.counts import KINDS
from streamwork.engine.idleness import Idleness
from streamwork.epoch import reported
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.manifest import Manifest, SinkPart
from streamwork.job import Graph
from streamwork.state import FileChains
from streamwork.world import FileRef


@dataclass
class ManifestDraft:
    parent: Manifest
    known: FileChains  # the state files of the parent, without those that are damaged
    positions: Position
    watermarks: dict[str, int]
    idle: dict[str, Idleness]
    floors: dict[str, int]
    counters: dict[str, dict[str, int]]
    components: dict[str, dict[str, tuple[FileRef, ...]]]
    letters: dict[str, dict[str, FileRef]]
    sinks: dict[str, SinkPart] = field(default_factory=dict)
    failed: tuple[FileRef, ...] = ()
    taken: tuple[str, ...] = ()
    ledgers: dict[str, str] | UnsetType = UNSET

    @classmethod
    def of(cls, graph: Graph, epoch: Epoch, parent: Manifest, known: FileChains) -> ManifestDraft:
        """What the plan and the reports say."""
        reports = epoch.reports
        return cls(
            parent=parent,
            known=known,
            positions=reported.end_of(epoch.start, epoch.plan, reports),
            watermarks={
                **parent.watermarks,
                **{f"{r.component}/{part}": at for r in reports for part, at in r.watermarks.items()},
            },
            idle={
                **(parent.idle or {}),
                **{f"{r.component}/{part}": one for r in reports for part, one in r.idle.items()},
            },
            floors={**(parent.floors or {}), **reported.floors(reports)},
            counters={node.id: reported.counters(node.id, reports) for node in graph.nodes},
            components={node.id: reported.chains(node.id, reports) for node in graph.stateful},
            letters=reported.letters(reports),
        )

    def count(self, changes: Mapping[str, Mapping[str, int]]) -> None:
        """Add to the counters of components. A component may be gone that has not acknowledged an event."""
        for name, kinds in changes.items():
            mine = self.counters.setdefault(name, dict.fromkeys(KINDS, 0))
            mine.update((kind, mine[kind] + change) for kind, change in kinds.items())

    def manifest(self, epoch: Epoch, uid: str, fingerprint: str) -> Manifest:
        return Manifest(
            epoch=epoch.number,
            parent=self.parent.epoch,
            parent_sha256=self.parent.sha256,
            fence=epoch.plan.fence,
            uid=uid,
            positions=self.positions,
            components=self.components,
            sinks=self.sinks,
            counters=self.counters,
            fingerprint=fingerprint,
            failed=self.failed,
            taken=self.taken,
            letters=self.letters,
            watermarks=self.watermarks,
            idle=self.idle or UNSET,
            floors=self.floors or UNSET,
            ledgers=self.ledgers,
        )
