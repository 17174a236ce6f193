"""What is kept: pure policy.

The newest `retain` manifests of the line that leads to the newest one, and one more, the *anchor*: the newest manifest of that
line that can do without every file that the newest one cannot do without. So if any single file is damaged, there is a
manifest to build on: the state files of a manifest that are not needed by all ways to read it can be lost anyway
(`state.chain`), and those that are needed by all ways are not needed by the anchor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from streamwork.epoch.manifest import Manifest
from streamwork.state import essential


def kept(line: Sequence[Manifest], retain: int, pinned: Collection[int] = ()) -> list[Manifest]:
    """Of a line of manifests, the newest first, those to keep, in the same order. Epochs that are pinned are kept in any case."""
    keep = [manifest for place, manifest in enumerate(line) if place < retain or manifest.epoch in pinned]
    if not line:
        return keep
    needed = vital(line[0])
    if any(not needed & vital(manifest) for manifest in keep):
        return keep
    anchor = next((manifest for manifest in line[retain:] if not needed & vital(manifest)), None)
    return keep if anchor is None else sorted([*keep, anchor], key=line.index)


def vital(manifest: Manifest) -> set[str]:
    """The files without any one of which the manifest cannot be built on."""
    chains = [chain for instances in manifest.components.values() for chain in instances.values()]
    return {path for chain in chains for path in essential(chain)} | {ref.path for ref in manifest.failed}
