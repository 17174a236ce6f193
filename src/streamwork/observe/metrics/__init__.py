"""Metrics of a job for Prometheus, made from its `JobStatus`.

`METRICS` is the catalogue: every metric with its type, unit, labels and meaning, and the function that reads it from a status.
The table in ``docs/monitoring.md``, the dashboard and the alert rules are compared with it.

Counters count since `history.sqlite` was created; if that file is removed, they start again at zero.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from streamwork.observe.metrics.channels import CHANNELS
from streamwork.observe.metrics.checkpoints import CHECKPOINTS
from streamwork.observe.metrics.events import EVENTS
from streamwork.observe.metrics.job import JOB
from streamwork.observe.metrics.latency import LATENCY
from streamwork.observe.metrics.metric import Metric, Type
from streamwork.observe.metrics.sources import SOURCES
from streamwork.observe.status import JobStatus

__all__ = ["METRICS", "Metric", "Type", "exposition"]

METRICS: tuple[Metric, ...] = (*JOB, *CHECKPOINTS, *SOURCES, *EVENTS, *CHANNELS, *LATENCY)


def exposition(status: JobStatus) -> bytes:
    """The metrics of a job in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Metrics(status))
    return generate_latest(registry)


class _Metrics(Collector):
    def __init__(self, status: JobStatus) -> None:
        self._status = status

    def describe(self) -> list[Family]:
        return []  # otherwise the registry collects everything once to learn the names

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield metric.family(self._status)
