"""Metrics of input: offsets, lag, event time, input in doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from streamwork.epoch.in_doubt import POLLED
from streamwork.observe.metrics.metric import Point, counter, gauge
from streamwork.observe.status import JobStatus


def _in_doubt(status: JobStatus) -> Iterator[Point]:
    """Also 0 for the sources that have offsets: `increase` needs a value before the first one."""
    found = Counter({(one.source, one.unit): 0 for one in status.offsets})
    for one in status.in_doubt:
        if one.unit != POLLED:
            found[one.source.partition("/")[0], one.unit] += one.end - one.start
    yield from (Point(labels, number) for labels, number in sorted(found.items()))


def _lag(status: JobStatus) -> Iterator[Point]:
    for source, lag in status.lag.items():
        for partition, behind in lag.partitions.items():
            yield Point((source, partition, lag.unit), behind)


SOURCES = (
    gauge(
        "streamwork_lag",
        "Input that no completed checkpoint has read, in the source's unit.",
        "source partition unit",
        _lag,
    ),
    gauge(
        "streamwork_lag_seconds",
        "The lag of a source as seconds of input at its rate of the last minute. Missing while no input comes.",
        "source",
        lambda status: [Point((name,), one) for name, one in status.seconds_behind.items() if one is not None],
    ),
    gauge(
        "streamwork_source_end",
        "The offset at which the input of a source partition ended when a driver last read it.",
        "source partition unit",
        lambda status: [Point((one.source, one.partition, one.unit), one.end) for one in status.offsets],
    ),
    gauge(
        "streamwork_source_position",
        "The offset up to which the newest checkpoint has read.",
        "source partition unit",
        lambda status: [Point((one.source, one.partition, one.unit), one.read) for one in status.offsets],
    ),
    gauge(
        "streamwork_watermark_timestamp_seconds",
        "How far event time has come in a source partition at the newest checkpoint, since 1970.",
        "source partition",
        lambda status: [Point((one.source, one.partition), one.watermark) for one in status.event_times],
    ),
    gauge(
        "streamwork_partition_idle",
        "1 if a source partition brings no events, and so holds back no other.",
        "source partition",
        lambda status: [Point((one.source, one.partition), one.idle) for one in status.event_times],
    ),
    counter(
        "streamwork_in_doubt_total",
        "Under at-most-once: input of interrupted epochs, in the source's unit. It may or may not have been delivered.",
        "source unit",
        _in_doubt,
    ),
    counter(
        "streamwork_in_doubt_epochs_total",
        "Under at-most-once: interrupted epochs with input in doubt.",
        "",
        lambda status: [Point((), len({(one.epoch, one.fence) for one in status.in_doubt}))],
    ),
)
