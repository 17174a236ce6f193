"""Retention: removes the oldest segments that the policy does not keep and no consumer needs.

An index is removed before its segment, and a segment before the next newer one: an interrupted run leaves a log without holes.
"""

from __future__ import annotations

import contextlib

from streamwork.log.decisions import Decisions
from streamwork.log.index import index_path
from streamwork.log.partition import Partition
from streamwork.log.policy import Policy, SegmentFacts, removable
from streamwork.log.segment import segment_path
from streamwork.world import Disk


def retain(disk: Disk, partition: Partition, policy: Policy, needed: int | None, now: float) -> int:
    """Remove the segments that the policy does not keep and no consumer needs. Returns their number. Needs the writer's lock."""
    if policy.retain_bytes is None and policy.retain_age is None:
        return 0
    partition.relist()
    finished = [_facts(disk, partition, place) for place in range(len(partition.bases) - 1)]
    active = partition.active.scanned if partition.bases else 0
    limit = partition.end if needed is None else needed
    count = removable(policy, finished, active, limit, now)
    for base in partition.bases[:count]:
        _remove(disk, partition, base)
    _remove_lost_indexes(disk, partition)
    partition.relist()
    return count


def retain_decisions(disk: Disk, decisions: Decisions) -> None:
    """Remove the oldest segments of ``transactions`` that concern only removed events. Needs its lock."""
    partition = decisions.partition
    starts = {data.number: data.start for data in decisions.data}
    partition.relist()
    for base, following in zip(partition.bases[:-1], partition.bases[1:], strict=True):
        if decisions.is_needed(base, following, starts):
            break
        _remove(disk, partition, base)
    partition.relist()


def _facts(disk: Disk, partition: Partition, place: int) -> SegmentFacts:
    base, end = partition.bases[place], partition.bases[place + 1]
    entries = partition.segment(place).entries
    # The age of an unreadable segment is unknown: it counts as new, and is kept so that its readers get the error.
    last = entries[-1].time / 1_000_000 if entries else float("inf")
    return SegmentFacts(base, end, disk.size(segment_path(partition.folder, base)), last)


def _remove(disk: Disk, partition: Partition, base: int) -> None:
    path = segment_path(partition.folder, base)
    with contextlib.suppress(OSError):  # the next roll tries again
        disk.remove(index_path(path))
        disk.remove(path)


def _remove_lost_indexes(disk: Disk, partition: Partition) -> None:
    """Remove indexes without a segment: a reader may write an index just after its segment was removed."""
    names = set(disk.names(partition.folder))
    for name in names:
        if name.endswith(".index") and name.replace(".index", ".arrow") not in names:
            with contextlib.suppress(OSError):
                disk.remove(partition.folder / name)
