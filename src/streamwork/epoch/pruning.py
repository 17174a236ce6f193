"""Pruning: what no kept checkpoint needs is removed, after every epoch and at a start. `epoch.retention` says what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streamwork.epoch.compactor import Compactor
from streamwork.epoch.fences import Fences
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.retention import kept
from streamwork.epoch.store import Store

CLEAN_UP_EVERY = 20
"""After so many epochs, files of failed and abandoned attempts are searched for."""


class Pins(Protocol):
    """A part that needs checkpoints beyond their time."""

    @property
    def pinned(self) -> frozenset[int]:
        """Epochs whose manifests are to be kept, with their files."""


class Pruner:
    """Knows the checkpoints that are kept. A driver that has lost its job stops here: what it would remove may be what the new
    one builds on.
    """

    def __init__(self, store: Store, fences: Fences, compactor: Compactor, pins: Sequence[Pins], retain: int) -> None:
        """Checkpoints that any of `pins` has pinned are kept."""
        self.line: Sequence[Manifest] = ()
        """The newest checkpoint and those of its ancestors that are kept, newest first."""
        self._store = store
        self._fences = fences
        self._compactor = compactor
        self._pins = pins
        self._retain = retain
        self._cleaned = 0  # the epoch after which files were last searched for

    @property
    def oldest(self) -> Manifest:
        """The oldest checkpoint that is kept."""
        return self.line[-1]

    def begin(self, fence: int, line: Sequence[Manifest]) -> None:
        """At a start, with all ancestors that are there."""
        self.line = line
        self._prune(fence, whole=True)
        self._fences.forget(below=min(manifest.fence for manifest in self.line))

    def prune(self, fence: int, newest: Manifest) -> None:
        """After an epoch."""
        self.line = [newest, *self.line]
        due = newest.epoch >= self._cleaned + CLEAN_UP_EVERY and not self._compactor.busy
        if due:
            self._cleaned = newest.epoch
        self._prune(fence, whole=False, clean_up=due)

    def _prune(self, fence: int, whole: bool, clean_up: bool = True) -> None:
        """Remove manifests, then the files that only they named, then plans and claims; those only if a manifest went, unless
        pruning is `whole`. Clean up: remove files of this fence and of lower ones that no manifest names.
        """
        self._fences.check(fence)
        keep = kept(self.line, self._retain, frozenset().union(*(one.pinned for one in self._pins)))
        named = {path for manifest in keep for path in manifest.files}
        epochs = {manifest.epoch for manifest in keep}
        gone = [manifest for manifest in self.line if manifest.epoch not in epochs]
        for manifest in gone:
            self._store.remove_manifest(manifest.epoch)
        self._store.discard_files({path for manifest in gone for path in manifest.files if path not in named})
        if gone or whole:
            self._store.remove_plans(below=keep[-1].reached_by)
            self._store.remove_claims(below=keep[-1].reached_by)
        if clean_up:
            self._store.clean_up(fence, named, done=self.line[0].epoch)
        self.line = keep
