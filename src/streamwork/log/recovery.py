"""Recovery of the active segment after its last writer ended without closing it. The next writer:

    1  checks every batch that may not have been durable, including its body;
    2  at the first damaged one: if a later batch records that this one was durable, acknowledged events are
       damaged, and the writer refuses: SW-LOG-DAMAGED. Otherwise it is the torn tail of an append;
    3  copies the tail to ``LOG/quarantine/`` if it may hold complete batches, so that it can be inspected;
    4  truncates the file there, and syncs it before it appends anything.

A last batch that was damaged after its sync cannot be distinguished from one that was never completely written: hence step 3.

Causes: kill -9 leaves at most one unfinished batch at the end. A power failure may leave, after the last
sync, any mixture of written and unwritten pages: batches with holes, followed by intact ones.
"""

from __future__ import annotations

import contextlib
import logging

import msgspec

from streamwork.log.frame import BadFrame, check_body, whole_frames
from streamwork.log.partition import Partition
from streamwork.log.segment import Segment
from streamwork.wording import plural
from streamwork.world import Disk, DiskFile

_log = logging.getLogger(__name__)
QUARANTINE = "quarantine"


class Recovery(msgspec.Struct, frozen=True):
    """A torn tail that was truncated. Nothing in it had been acknowledged as durable."""

    file: str
    offset: int  # of the next append
    cut_bytes: int
    reason: str
    kept_in: str = ""  # path of the removed bytes, if they may be more than an unfinished append

    def __str__(self) -> str:
        kept = f"; the bytes are kept in {self.kept_in}" if self.kept_in else ""
        return (
            f"{self.file}: removed {plural(self.cut_bytes, 'byte')} of an unfinished append ({self.reason}); "
            f"the partition continues at offset {self.offset:,}{kept}"
        )


def recover(disk: Disk, partition: Partition, file: DiskFile) -> Recovery | None:
    """Truncate the active segment after its last complete batch. `file` is that segment, open for appending."""
    segment = partition.active
    reason = _verify_tail(segment)  # 1
    size = disk.size(segment.path)
    if not reason and size == segment.scanned:
        return None
    tail = disk.read_at(segment.path, segment.scanned, size - segment.scanned)
    survivors = [frame.info.synced for frame in whole_frames(tail, segment.scanned)]
    if any(synced > segment.end for synced in survivors):  # 2
        raise segment.damaged(BadFrame(reason or "the batch is damaged"), segment.end, segment.scanned)
    kept_in = _quarantine(disk, partition, segment, tail) if reason or survivors else ""  # 3
    report = Recovery(str(segment.path), segment.end, len(tail), reason or "the batch is incomplete", kept_in)
    file.truncate(segment.scanned)  # 4
    file.sync()
    segment.bad = None
    _log.warning("%s", report)
    return report


def _verify_tail(segment: Segment) -> str:
    """Drop the entries from the first damaged batch on. Returns the reason; empty if all batches are intact."""
    reason = "" if segment.bad is None else str(segment.bad)
    known = segment.entries[-1].synced if segment.entries else 0
    for place in range(segment.place(known), len(segment.entries)):
        entry = segment.entries[place]
        if entry.next_position <= segment.indexed:
            continue  # an indexed batch is durable: the index is written after a sync
        try:
            frame, data = segment.frame(entry)
            check_body(frame, data.slice(frame.body - frame.position))
        except BadFrame as bad:
            del segment.entries[place:]
            segment.scanned = entry.position
            return str(bad)
    return reason


def _quarantine(disk: Disk, partition: Partition, segment: Segment, tail: bytes) -> str:
    folder = partition.folder.parent / QUARANTINE
    path = folder / f"{partition.folder.name}-{segment.path.stem}-{segment.scanned}.bytes"
    with contextlib.suppress(OSError):  # a full disk must not prevent the log from opening
        disk.make_folder(folder)
        disk.replace(path, tail)
        return str(path)
    return ""
