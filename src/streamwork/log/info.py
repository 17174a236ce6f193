"""What there is to know about a log at a glance."""

from __future__ import annotations

from typing import Any

import msgspec

from streamwork.errors import StreamworkError
from streamwork.log.lock import Holder, Locks
from streamwork.log.reader import LogReader


class PartitionInfo(msgspec.Struct, frozen=True):
    partition: int
    start: int  # lowest offset that is still there
    end: int  # offset of the next event
    committed_end: int  # where a read-committed reader ends
    segments: int
    bytes: int
    writer: Holder | None
    error: dict[str, str] | None  # code, cause and action, if the newest segment is damaged


class ConsumerInfo(msgspec.Struct, frozen=True):
    uid: str
    source: str
    offsets: dict[str, int]
    lag: int  # events between what it needs and the end, over all partitions


class LogInfo(msgspec.Struct, frozen=True):
    path: str
    event: str
    fields: dict[str, str]
    key: tuple[str, ...]
    groups: int
    events: int
    bytes: int
    partitions: list[PartitionInfo]
    consumers: list[ConsumerInfo]


def describe(log: LogReader[Any], locks: Locks) -> LogInfo:
    """Look at the log as it is now. Damage at the end of a partition is part of the answer, not an error."""
    partitions = [_partition(log, number, locks) for number in log.partitions()]
    ends = {str(p.partition): p.end for p in partitions}
    consumers = [
        ConsumerInfo(
            consumer.uid, source, offsets, sum(max(0, end - offsets.get(name, 0)) for name, end in ends.items())
        )
        for consumer in log.consumers.all()
        for source, offsets in consumer.sources.items()
    ]
    return LogInfo(
        str(log.path),
        log.settings.event,
        log.settings.fields,
        log.settings.key,
        log.settings.groups,
        sum(p.end - p.start for p in partitions),
        sum(p.bytes for p in partitions),
        partitions,
        consumers,
    )


def _partition(log: LogReader[Any], number: int, locks: Locks) -> PartitionInfo:
    error = None
    try:
        log.end(number)
    except StreamworkError as damage:
        error = damage.to_dict()
    view = log.views.partition(number)
    sizes = view.sizes()
    return PartitionInfo(
        number,
        view.start,
        view.end,
        log.views.decisions.stable_end(view),
        len(sizes),
        sum(sizes),
        locks.holder(view.folder),
        error,
    )
