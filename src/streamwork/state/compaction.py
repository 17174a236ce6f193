"""Compaction: a chain of deltas is made into a snapshot, file to file, in the background; never by a task.

A long chain makes restarts slow; a snapshot costs disk writes. So a snapshot is due when the deltas since the
last one hold as many rows as it does: each row is then written about twice, however large the state is.
"""

from __future__ import annotations

from streamwork.state.chain import SNAPSHOT, FileChain, epoch_of, is_snapshot, trimmed, ways
from streamwork.state.files import StateFiles, conformed
from streamwork.state.merge import merge
from streamwork.state.rows import RowFormat
from streamwork.world import FileRef

LONGEST_CHAIN = 20
"""Deltas in a chain before a snapshot is worth its cost."""

OLDEST_DELTA = 1_000
"""Age of the oldest delta, in epochs, at which a snapshot is due even for a short chain: old files can then be pruned."""


def deltas_since(chain: FileChain) -> FileChain:
    """The deltas after the newest snapshot."""
    newest = max((place for place, ref in enumerate(chain) if is_snapshot(ref)), default=-1)
    return chain[newest + 1 :]


def is_due(chain: FileChain, epoch: int) -> bool:
    """True if a snapshot of the chain should be made."""
    deltas = deltas_since(chain)
    if not deltas:
        return False
    snapshot = max((ref.rows for ref in chain if is_snapshot(ref)), default=0)
    worth = len(deltas) >= LONGEST_CHAIN and sum(ref.rows for ref in deltas) >= snapshot
    return worth or epoch - epoch_of(deltas[0]) >= OLDEST_DELTA


def compact(files: StateFiles, chain: FileChain, rows: RowFormat, stem: str) -> FileRef:
    """Write the snapshot of a chain, as of its last delta. Refuses a damaged file."""
    tables = [conformed(rows, ref, files.read(ref)) for ref in next(ways(chain))]
    key = rows.key_names
    return files.write(snapshot_path(chain, stem), merge(tables, key), key)


def snapshot_path(chain: FileChain, stem: str) -> str:
    """The path of a snapshot of a chain, as of its last file."""
    return chain[-1].path.rpartition("/")[0] + f"/{epoch_of(chain[-1]):012d}-{stem}{SNAPSHOT}"


def with_known_snapshots(chain: FileChain, known: FileChain) -> tuple[FileRef, ...]:
    """The chain with the snapshots that a `known` chain has of its beginning: the instance that reported it may not know them."""
    for snapshot in known:
        shared = any(ref in known for ref in chain if epoch_of(ref) <= epoch_of(snapshot) and not is_snapshot(ref))
        if is_snapshot(snapshot) and snapshot not in chain and shared:
            chain = with_snapshot(chain, snapshot)
    return tuple(chain)


def with_snapshot(chain: FileChain, snapshot: FileRef) -> tuple[FileRef, ...]:
    """The chain with a snapshot of its beginning in its place, behind the delta of its epoch."""
    before = [ref for ref in chain if epoch_of(ref) <= epoch_of(snapshot)]
    return trimmed((*before, snapshot, *chain[len(before) :]))
