"""`Metric`: one entry of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import msgspec
from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from streamwork.observe.status import JobStatus


class Type(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Point(NamedTuple):
    """One series of a metric now; `labels` are the values of its labels but for the job."""

    labels: tuple[str, ...]
    value: float


class Buckets(NamedTuple):
    """One series of a histogram; `counts` are cumulative, by upper bound."""

    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Metric(msgspec.Struct, frozen=True):
    """A metric, as queries name it."""

    name: str
    type: Type
    meaning: str
    own_labels: tuple[str, ...]
    read: Callable[[JobStatus], Iterable[Point | Buckets]]

    def __post_init__(self) -> None:
        if (self.type is Type.COUNTER) is not self.name.endswith("_total"):
            raise ValueError(f"{self.name}: counters, and only counters, end in _total")

    @property
    def labels(self) -> tuple[str, ...]:
        return ("job", *self.own_labels)

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series."""
        if self.type is Type.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)

    def family(self, status: JobStatus) -> Family:
        """All its series of one job."""
        points = self.read(status)
        if self.type is Type.HISTOGRAM:
            histogram = HistogramMetricFamily(self.name, self.meaning, labels=self.labels)
            for one in points:
                assert isinstance(one, Buckets)
                assert all(low <= high for low, high in pairwise(one.counts)), f"{self.name}: counts must be cumulative"
                buckets = [(_bound(at), float(count)) for at, count in zip(one.bounds, one.counts, strict=True)]
                histogram.add_metric((status.job, *one.labels), buckets, one.sum)
            return histogram
        kind = CounterMetricFamily if self.type is Type.COUNTER else GaugeMetricFamily
        family = kind(self.name.removesuffix("_total"), self.meaning, labels=self.labels)
        for one in points:
            assert isinstance(one, Point)
            family.add_metric((status.job, *one.labels), one.value)
        return family


def _bound(at: float) -> str:
    return "+Inf" if at == float("inf") else repr(at)


def gauge(name: str, meaning: str, labels: str, read: Callable[[JobStatus], Iterable[Point]]) -> Metric:
    """`labels` are those but for the job, separated by spaces."""
    return Metric(name, Type.GAUGE, meaning, tuple(labels.split()), read)


def counter(name: str, meaning: str, labels: str, read: Callable[[JobStatus], Iterable[Point]]) -> Metric:
    return Metric(name, Type.COUNTER, meaning, tuple(labels.split()), read)


def histogram(name: str, meaning: str, labels: str, read: Callable[[JobStatus], Iterable[Buckets]]) -> Metric:
    return Metric(name, Type.HISTOGRAM, meaning, tuple(labels.split()), read)


def known(value: float | None) -> Iterable[Point]:
    """A metric without labels of its own; no series if the value is unknown."""
    return () if value is None else (Point((), value),)
