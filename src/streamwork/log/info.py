"""A summary of a log: its partitions and its consumers."""

from __future__ import annotations

from typing import Any

import msgspec

from streamwork.errors import StreamworkError
from streamwork.log.consumers import Consumer
from streamwork.log.lock import Holder, Locks
from streamwork.log.reader import LogReader


class PartitionInfo(msgspec.Struct, frozen=True):
    partition: int
    start: int  # lowest retained offset
    end: int  # offset of the next event
    committed_end: int  # end for a read-committed reader
    segments: int
    bytes: int
    writer: Holder | None
    error: dict[str, str] | None  # code, cause and action, if the newest segment is damaged


class ConsumerInfo(msgspec.Struct, frozen=True):
    uid: str
    job: str  # the job's name; empty if the consumer is not a job
    source: str
    offsets: dict[str, int]  # partition -> lowest offset that it needs
    read: dict[str, int]  # partition -> offset that it has read up to
    lag: int  # committed events that it has not read, over all partitions


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
    """Summarize the log as it is now. Damage at the end of a partition is reported in the summary and not raised."""
    partitions = [_partition(log, number, locks) for number in log.partitions()]
    consumers = [
        _consumer(consumer, source, partitions) for consumer in log.consumers.all() for source in consumer.sources
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


def _consumer(consumer: Consumer, source: str, partitions: list[PartitionInfo]) -> ConsumerInfo:
    read = consumer.read_up_to(source)
    lag = sum(max(0, one.committed_end - max(one.start, read.get(str(one.partition), 0))) for one in partitions)
    return ConsumerInfo(consumer.uid, consumer.job, source, consumer.sources[source], read, lag)


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
