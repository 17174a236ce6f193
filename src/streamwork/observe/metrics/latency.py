"""Metrics of latency, from the vital signs of tasks: mode live."""

from __future__ import annotations

from collections.abc import Iterator

from streamwork.observe.latency import BOUNDS
from streamwork.observe.metrics.metric import Buckets, histogram
from streamwork.observe.status import JobStatus


def _sinks(status: JobStatus) -> Iterator[Buckets]:
    for one in () if status.latency is None else status.latency.sinks:
        yield Buckets((one.component,), BOUNDS, one.buckets, one.seconds)


LATENCY = (
    histogram(
        "streamwork_latency_seconds",
        "In live mode: the time from when a source has read an event until its output is at the sink, since the tasks began.",
        "sink",
        _sinks,
    ),
)
