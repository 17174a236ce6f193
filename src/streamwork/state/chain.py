"""Chains of state files: what a manifest names for one instance of a component.

state/COMPONENT/INSTANCE/000000000042-FENCE-ATTEMPT.delta.parquet      the keys that changed in epoch 42
state/COMPONENT/INSTANCE/000000000042-FENCE-ATTEMPT.snapshot.parquet   all keys at the end of epoch 42

Snapshots are made of deltas, file to file (`state.compaction`). The delta of a snapshot's own epoch stays beside it, and a chain
begins at the older of its two newest snapshots:

    snapshot 20 · delta 21 ... delta 40 · snapshot 40 · delta 41 · delta 42

So there are two ways to read it: from snapshot 40 on, or from snapshot 20 on over all deltas. If a file up to snapshot 40 is
damaged, one of the two ways is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from streamwork.world import FileRef

SNAPSHOT = ".snapshot.parquet"
DELTA = ".delta.parquet"

FileChain = Sequence[FileRef]
FileChains = Mapping[str, Mapping[str, tuple[FileRef, ...]]]
"""Component -> instance -> its chain of files."""


def is_snapshot(ref: FileRef) -> bool:
    return ref.path.endswith(SNAPSHOT)


def epoch_of(ref: FileRef) -> int:
    """The epoch that wrote a state file: its name begins with it."""
    return int(PurePosixPath(ref.path).name.partition("-")[0])


def ways(chain: FileChain) -> Iterator[tuple[FileRef, ...]]:
    """The ways to read a chain, each complete by itself, the shortest first."""
    snapshots = [place for place, ref in enumerate(chain) if is_snapshot(ref)]
    for place in reversed(snapshots):
        yield (chain[place], *(ref for ref in chain[place:] if not is_snapshot(ref)))
    if not snapshots or snapshots[0] > 0:
        yield tuple(ref for ref in chain if not is_snapshot(ref))


def essential(chain: FileChain) -> set[str]:
    """The paths of the files that are on every way: without one of them the chain cannot be read."""
    return set.intersection(*({ref.path for ref in way} for way in ways(chain)))


def trimmed(chain: FileChain) -> tuple[FileRef, ...]:
    """The chain from the older of its two newest snapshots on."""
    snapshots = [place for place, ref in enumerate(chain) if is_snapshot(ref)]
    return tuple(chain[snapshots[-2] :] if len(snapshots) > 1 else chain)
