"""`Catalogue`: what a start can restore. Today checkpoints, completed or prepared.

A manifest of fence f counts only up to the epoch where the next fence started: what lies beyond was written by a driver that had
lost its job. The catalogue reads no file: it is given the stored manifests, the starts, and the health of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from streamwork.epoch.manifest import Manifest
from streamwork.epoch.start_records import StartRecord
from streamwork.epoch.store import Stored


class Health(Protocol):
    """The health of the files that manifests name (`epoch.recovery.verify`)."""

    def state_problem(self, manifest: Manifest) -> str:
        """Why a manifest cannot be restored; empty if it can."""

    def staged_problem(self, manifest: Manifest, sink: str) -> str:
        """Why a sink cannot be given the outputs that a manifest staged for it; empty if it can."""


class Catalogue:
    """The manifests that can be read and that count, with their ancestors and the health of their files."""

    def __init__(self, stored: Sequence[Stored], starts: Mapping[int, StartRecord], health: Health) -> None:
        self._starts = starts
        self._health = health
        readable = [s.manifest for s in stored if s.manifest is not None]
        self._by_hash = {manifest.sha256: manifest for manifest in readable}
        # A parent was completed, even if the copy that says so is lost.
        parents = [self._by_hash[m.parent_sha256] for m in readable if m.parent_sha256 in self._by_hash]
        self._completed = {s.epoch for s in stored if s.completed} | {parent.epoch for parent in parents}
        self.newest_first = sorted((m for m in readable if self._counts(m)), key=lambda m: m.age, reverse=True)
        self.unreadable = [(s.epoch, s.problem) for s in stored if s.manifest is None]
        self.sinks = frozenset(name for m in readable if self.is_completed(m) for name in m.sinks)
        """The sinks that completed manifests were committed to."""

    def _counts(self, manifest: Manifest) -> bool:
        later = [self._starts[fence] for fence in sorted(self._starts) if fence > manifest.fence > 0]
        return not later or manifest.epoch <= later[0].epoch

    def is_completed(self, manifest: Manifest) -> bool:
        return manifest.epoch in self._completed

    def problem(self, manifest: Manifest) -> str:
        """Why a manifest cannot be restored; empty if it can."""
        return self._health.state_problem(manifest)

    def staged_problem(self, manifest: Manifest, sink: str) -> str:
        """Why a sink cannot be given the outputs that a manifest staged for it; empty if it can."""
        return self._health.staged_problem(manifest, sink)

    @property
    def newest(self) -> Manifest | None:
        """The newest manifest that can be restored, at any position of the sinks."""
        return next((manifest for manifest in self.newest_first if not self.problem(manifest)), None)

    @property
    def problems(self) -> list[tuple[int, str]]:
        """(epoch, reason) of every manifest, for an error: empty reasons included."""
        return [*self.unreadable, *((manifest.epoch, self.problem(manifest)) for manifest in self.newest_first)]

    def lineage(self, manifest: Manifest) -> Iterator[Manifest]:
        """The manifest, its parent, and so on, as far as they can be read."""
        one: Manifest | None = manifest
        while one is not None:
            yield one
            one = self._by_hash.get(one.parent_sha256)

    def parent(self, manifest: Manifest) -> Manifest | None:
        return self._by_hash.get(manifest.parent_sha256)

    def line(self, manifest: Manifest) -> list[Manifest]:
        """The manifest and those of its ancestors that are stored, newest first. Manifests between may have been pruned, and
        with them the links from child to parent. But a completed manifest that counts and is older is an ancestor: what was
        built on any other manifest lies beyond the start of a later fence.
        """
        older = [one for one in self.newest_first if one.age < manifest.age and self.is_completed(one)]
        return [manifest, *older]
