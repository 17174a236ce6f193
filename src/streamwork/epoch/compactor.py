"""Snapshots are made while epochs go on: begun after one, named by the manifest of a later one.

    1  begin    after an epoch e whose chains have grown long, for all instances at once: the manifest of e is pinned
    2  write    file to file, in the background; no manifest names the files yet
    3  install  the next manifest that is prepared names the snapshots, behind the deltas of e; e is no longer pinned

A crash before 3 leaves files that no manifest names; the next start removes them, and the snapshot is due again.

All instances together, and e pinned, for the sake of retention: the manifest of e needs no delta after e, and those after it no
file before e. So if any single file is lost, one of them can do without it (`epoch.retention`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from streamwork.engine.instance import row_format
from streamwork.epoch.background import Background
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.participant import Participant
from streamwork.errors import Refused
from streamwork.job import Graph
from streamwork.state import FileChains, StateFiles, compaction
from streamwork.state.rows import RowFormat
from streamwork.world import FileRef

if TYPE_CHECKING:
    from streamwork.epoch.draft import ManifestDraft
    from streamwork.epoch.footing import Footing

Snapshots = dict[tuple[str, str], FileRef]


class Compactor(Participant):
    def __init__(
        self,
        graph: Graph,
        files: StateFiles,
        background: Background,
        new_stem: Callable[[], str],
        discard: Callable[[Collection[str]], None],
    ) -> None:
        """`new_stem` gives names that were never used before: fence and attempt. `discard` removes files, by path."""
        self._graph = graph
        self._rows: dict[str, RowFormat] = {}
        self._files = files
        self._discard = discard
        self._background = background
        self._new_stem = new_stem
        self._under_way: Future[Snapshots] | None = None
        self._not_before = 0
        self.pinned: frozenset[int] = frozenset()
        """The epoch whose manifest is to be kept until its snapshots are named."""

    def resume(self, footing: Footing) -> Sequence[str]:
        formats = [row_format(self._graph, node, footing.identity.groups) for node in self._graph.stateful]
        self._rows = {rows.component: rows for rows in formats if rows.key_names}
        return ()

    def contribute(self, epoch: Epoch, draft: ManifestDraft) -> None:
        draft.components = self.install(draft.components, draft.known, epoch.number)

    def completed(self, epoch: Epoch) -> None:
        self.begin(epoch.manifest)

    def close(self, unprepared: Sequence[Epoch]) -> None:
        """Wait for the snapshots that are being written; no manifest will name them."""
        self._discard(self.give_up())

    def begin(self, manifest: Manifest) -> None:
        """1. After an epoch."""
        if self._under_way is not None or manifest.epoch < self._not_before:
            return
        chains = {
            (component, instance): chain
            for component, instances in manifest.components.items()
            for instance, chain in instances.items()
            if component in self._rows and compaction.deltas_since(chain)
        }
        if not any(compaction.is_due(chain, manifest.epoch) for chain in chains.values()):
            return
        self.pinned = frozenset({manifest.epoch})
        self._under_way = self._background(lambda: self._write(chains))

    def _write(self, chains: Mapping[tuple[str, str], tuple[FileRef, ...]]) -> Snapshots:
        """2. Returns nothing after an error: the job continues with its long chains, and the next start reports damaged files."""
        made: Snapshots = {}
        try:
            for (component, instance), chain in chains.items():
                rows = self._rows[component]
                made[component, instance] = compaction.compact(self._files, chain, rows, self._new_stem())
        except (Refused, OSError):
            return {}
        return made

    def install(self, chains: FileChains, known: FileChains, epoch: int) -> dict[str, dict[str, tuple[FileRef, ...]]]:
        """3. The chains that were reported, with the snapshots of those of the parent, and with those that are ready now."""
        named = {
            component: {
                instance: compaction.with_known_snapshots(chain, known.get(component, {}).get(instance, ()))
                for instance, chain in instances.items()
            }
            for component, instances in chains.items()
        }
        if self._under_way is None or not self._under_way.done():
            return named
        made = self._under_way.result()
        self._under_way, self.pinned = None, frozenset()
        if not made:
            self._not_before = epoch + compaction.LONGEST_CHAIN
        for (component, instance), snapshot in made.items():
            named[component][instance] = compaction.with_snapshot(named[component][instance], snapshot)
        return named

    def give_up(self) -> list[str]:
        """At the end: wait for the snapshots that are being written, and return their paths. No manifest will name them."""
        if self._under_way is None:
            return []
        made = self._under_way.result()
        self._under_way, self.pinned = None, frozenset()
        return [snapshot.path for snapshot in made.values()]

    @property
    def busy(self) -> bool:
        """True while there may be files that no manifest names yet."""
        return self._under_way is not None
