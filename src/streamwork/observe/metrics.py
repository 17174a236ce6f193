"""Metrics of a job for Prometheus, made from its `JobStatus`.

Counters count since `history.sqlite` was created; if that file is removed, they start again at zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from streamwork.epoch.history.values import Result
from streamwork.observe.status import JobStatus


def exposition(status: JobStatus) -> bytes:
    """The metrics of a job in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(JobMetrics(status))
    return generate_latest(registry)


class JobMetrics(Collector):
    """The status of a job as metrics."""

    def __init__(self, status: JobStatus) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        return []  # otherwise the registry collects everything once to learn the names

    def collect(self) -> Iterator[Metric]:
        yield self._events("streamwork_events", "Events by outcome, in every known attempt.", "attempted")
        yield self._events("streamwork_committed_events", "The same, in epochs that were committed.", "committed")
        yield from self._epochs()
        yield from self._checkpoint()
        yield self._lag()
        yield from self._unfinished()
        yield self._standbys()
        yield self._verdicts()
        yield from self._edges()

    def _events(self, name: str, what: str, which: str) -> Metric:
        family = CounterMetricFamily(name, what, labels=["job", "component", "instance", "kind"])
        for component, counts in self._status.counts.items():
            for instance, mine in counts.instances.items():
                for kind, number in getattr(mine, which).items():
                    family.add_metric([self._status.job, component, instance, kind], number)
        return family

    def _epochs(self) -> Iterator[Metric]:
        epochs = CounterMetricFamily("streamwork_epochs", "Epochs by outcome.", labels=["job", "outcome"])
        seconds = SummaryMetricFamily(
            "streamwork_epoch_seconds", "Duration of the steps of committed epochs.", labels=["job", "step"]
        )
        known = self._status.epochs
        for outcome, counts in known.items():
            epochs.add_metric([self._status.job, outcome], counts.epochs)
        done = [
            (counts.epochs, msgspec.structs.asdict(counts.seconds))
            for outcome, counts in known.items()
            if Result(outcome).committed
        ]
        for step in done[0][1] if done else ():
            took = sum(steps[step] or 0.0 for _, steps in done)
            seconds.add_metric([self._status.job, step], count_value=sum(count for count, _ in done), sum_value=took)
        yield epochs
        yield seconds

    def _checkpoint(self) -> Iterator[Metric]:
        number = GaugeMetricFamily("streamwork_checkpoint", "The newest completed checkpoint.", labels=["job"])
        at = GaugeMetricFamily(
            "streamwork_checkpoint_timestamp_seconds",
            "When the newest checkpoint was completed, since 1970.",
            labels=["job"],
        )
        if self._status.checkpoint is not None:
            number.add_metric([self._status.job], self._status.checkpoint)
        if self._status.completed_at is not None:
            at.add_metric([self._status.job], self._status.completed_at)
        yield number
        yield at

    def _lag(self) -> Metric:
        family = GaugeMetricFamily(
            "streamwork_lag",
            "Input that no completed checkpoint has read, in the source's unit.",
            labels=["job", "source", "partition", "unit"],
        )
        for source, lag in self._status.lag.items():
            for partition, behind in lag.partitions.items():
                family.add_metric([self._status.job, source, partition, lag.unit], behind)
        return family

    def _standbys(self) -> Metric:
        family = GaugeMetricFamily("streamwork_standbys", "Standbys that wait to take the job over.", labels=["job"])
        family.add_metric([self._status.job], len(self._status.standbys))
        return family

    def _verdicts(self) -> Metric:
        family = GaugeMetricFamily(
            "streamwork_verdict", "1 for each verdict that holds.", labels=["job", "verdict", "component"]
        )
        for kind, component in sorted({(one.kind.value, one.component) for one in self._status.verdicts}):
            family.add_metric([self._status.job, kind, component], 1)
        return family

    def _edges(self) -> Iterator[Metric]:
        labels = ["job", "sender", "receiver"]
        waiting = GaugeMetricFamily(
            "streamwork_channel_waiting_events", "Events that wait in a channel between instances.", labels=labels
        )
        size = GaugeMetricFamily("streamwork_channel_waiting_bytes", "About how many bytes they take.", labels=labels)
        full = GaugeMetricFamily("streamwork_channel_full", "1 while a channel is full.", labels=labels)
        seconds = CounterMetricFamily(
            "streamwork_channel_full_seconds", "How long a channel was full, since its task began.", labels=labels
        )
        dropped = CounterMetricFamily(
            "streamwork_channel_dropped_events", "Events dropped before a full channel, by policy.", labels=labels
        )
        for edge in self._status.edges:
            names = [self._status.job, edge.sender, edge.receiver]
            waiting.add_metric(names, edge.events)
            size.add_metric(names, edge.bytes)
            full.add_metric(names, edge.since is not None)
            seconds.add_metric(names, edge.full_seconds)
            dropped.add_metric(names, edge.dropped)
        yield from (waiting, size, full, seconds, dropped)

    def _unfinished(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "streamwork_waiting_events", "Events that are not done, under acknowledging.", labels=["job", "state"]
        )
        kept = CounterMetricFamily(
            "streamwork_dead_letters", "Dead letters that are kept.", labels=["job", "component"]
        )
        retrying = GaugeMetricFamily(
            "streamwork_retrying_events",
            "Events that a component retries in place while their checkpoint waits.",
            labels=["job", "component"],
        )
        job, found = self._status.job, self._status.waiting
        if not found.problem:
            waiting.add_metric([job, "failed"], found.count - found.pending)
            waiting.add_metric([job, "pending"], found.pending)
        for component, count in self._status.dead_letters.by_component.items():
            kept.add_metric([job, component], count)
        for component, count in Counter(one.component for one in self._status.retrying).items():
            retrying.add_metric([job, component], count)
        yield waiting
        yield kept
        yield retrying
