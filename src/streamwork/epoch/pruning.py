"""Pruning: what no kept checkpoint needs is removed. `epoch.retention` says which checkpoints are kept."""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.epoch.manifest import Manifest
from streamwork.epoch.retention import kept
from streamwork.epoch.store import Store

CLEAN_UP_EVERY = 20
"""After so many epochs, files of failed and abandoned attempts are searched for."""


class Pruner:
    """Knows the checkpoints that are kept. A driver must have checked its fence: what it removes may be what a newer driver
    builds on.
    """

    def __init__(self, store: Store, retain: int) -> None:
        self.line: Sequence[Manifest] = ()
        """The newest checkpoint and those of its ancestors that are kept, newest first."""
        self._store = store
        self._retain = retain
        self._cleaned = 0  # the epoch after which files were last searched for

    @property
    def oldest(self) -> Manifest:
        """The oldest checkpoint that is kept."""
        return self.line[-1]

    def prune(self, fence: int, pinned: int | None, clean_up: bool) -> None:
        """Remove manifests, then the files that only they named, then plans and claims. With `clean_up`, and now and then, also
        files of this fence and lower ones that no manifest names.
        """
        keep = kept(self.line, self._retain, pinned)
        named = {path for manifest in keep for path in manifest.files}
        epochs = {manifest.epoch for manifest in keep}
        gone = [manifest for manifest in self.line if manifest.epoch not in epochs]
        for manifest in gone:
            self._store.remove_manifest(manifest.epoch)
        self._store.discard_files({path for manifest in gone for path in manifest.files if path not in named})
        if gone:
            self._store.remove_plans(below=keep[-1].epoch)
            self._store.remove_claims(below=keep[-1].epoch)
        newest = self.line[0].epoch
        if clean_up and newest >= self._cleaned + CLEAN_UP_EVERY:
            self._cleaned = newest
            self._store.clean_up(fence, named, done=newest)
        self.line = keep
