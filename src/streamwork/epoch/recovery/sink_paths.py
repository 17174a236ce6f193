"""`SinkPaths`: the manifests that a sink must be offered to get from its ledger row to a manifest. Reads no file.

A sink without a ledger row, although a start has registered it or a completed manifest was committed to it, is lost: its target
was removed, replaced, or has another path now. It is refused (SW-SINK-LOST). On request (`refill`), it is given the staged
outputs that are kept, from the oldest manifest on that leads to the chosen one without a gap.
"""

from __future__ import annotations

from collections.abc import Collection

from streamwork.components import LedgerRow
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.recovery.catalogue import Catalogue


class SinkPaths:
    def __init__(self, catalogue: Catalogue, registered: Collection[str] = (), refill: Collection[str] = ()) -> None:
        """`registered` are the sinks that the last start wrote its fence into; `refill` those that may be filled again."""
        self._catalogue = catalogue
        self._registered = registered
        self._refill = refill

    def has_lost(self, sink: str, row: LedgerRow | None) -> bool:
        """True if the sink had a ledger row and has none now. (A row without a position is a sink that was rolled back.)"""
        return row is None and (sink in self._registered or sink in self._catalogue.sinks)

    def refills(self, sink: str, row: LedgerRow | None) -> bool:
        """True if the sink may be filled again and lacks what was committed to it. It is registered by now."""
        return sink in self._refill and sink in self._catalogue.sinks and (row is None or row.position is None)

    def path(self, manifest: Manifest, sink: str, row: LedgerRow | None) -> list[Manifest] | None:
        """The manifests to offer to a sink, oldest first, to bring it to `manifest`. None if there is no such path."""
        if self.has_lost(sink, row):
            return None
        if self.refills(sink, row):
            return self._kept(manifest, sink)
        written = row is not None and row.position is not None
        if not written and sink in self._catalogue.sinks and sink not in manifest.sinks:
            return None  # it has lost all rows: the job does not start again from the beginning to restore them
        path: list[Manifest] = []
        at = row.manifest_sha256 if row is not None else ""
        for one in self._catalogue.lineage(manifest):
            if (written and one.sha256 == at) or (not written and sink not in one.sinks):
                return path  # a sink that was never written is at the last manifest that does not name it
            if self._catalogue.staged_problem(one, sink):
                return None
            path.insert(0, one)
            if one.parent_sha256 == at if written else one.sinks[sink].first:
                return path  # the parent itself may have been pruned
        return None

    def _kept(self, manifest: Manifest, sink: str) -> list[Manifest] | None:
        """The manifests up to this one whose outputs for a sink are kept without a gap, oldest first; None without its own."""
        path: list[Manifest] = []
        for one in self._catalogue.lineage(manifest):
            if sink not in one.sinks or self._catalogue.staged_problem(one, sink):
                break
            path.insert(0, one)
        return path or None
