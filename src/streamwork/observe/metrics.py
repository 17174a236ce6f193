"""The counts of a job for Prometheus.

They are read from the job's files at every question, so they are the same whoever asks, and the job is not disturbed. What was
counted is counted since `history.sqlite` was begun; if that file is removed, it begins anew.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from streamwork.delivery.retrying import Mark, marks
from streamwork.epoch.fences import Fences
from streamwork.epoch.history.history import Count, input_ends, outcomes, totals
from streamwork.epoch.history.lag import lags
from streamwork.epoch.store import Store
from streamwork.observe.checkpoints import open_store
from streamwork.observe.status import letters, waits
from streamwork.world import Clock, RealProcesses


def exposition(root: Path, job: str, clock: Clock) -> bytes:
    """The metrics of a job in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(JobMetrics(open_store(root, job), job, clock))
    return generate_latest(registry)


class JobMetrics(Collector):
    """What the files of a job say."""

    def __init__(self, store: Store, job: str, clock: Clock) -> None:
        self._store = store
        self._job = job
        self._clock = clock

    def describe(self) -> list[Metric]:
        return []  # else it would be asked for everything before it is asked for anything

    def collect(self) -> Iterator[Metric]:
        history = self._store.folder / "history.sqlite"
        counted = totals(history)
        committed = [one for one in counted if one.outcome.committed]
        yield self._events(
            "streamwork_events", "Events by what became of them, in every attempt that is known.", counted
        )
        yield self._events("streamwork_committed_events", "The same, in epochs that were committed.", committed)
        yield from self._epochs(history)
        yield from self._checkpoint()
        yield self._lag(history)
        yield from self._undone()

    def _events(self, name: str, what: str, counted: list[Count]) -> Metric:
        family = CounterMetricFamily(name, what, labels=["job", "component", "instance", "kind"])
        sums: dict[tuple[str, str, str, str], int] = {}
        for one in counted:
            for kind, number in one.counts.numbers.items():
                key = (self._job, one.counts.component, str(one.counts.instance), kind)
                sums[key] = sums.get(key, 0) + number
        for labels, number in sums.items():
            family.add_metric(labels, number)
        return family

    def _epochs(self, history: Path) -> Iterator[Metric]:
        epochs = CounterMetricFamily("streamwork_epochs", "Epochs by what became of them.", labels=["job", "outcome"])
        seconds = SummaryMetricFamily(
            "streamwork_epoch_seconds", "How long the steps of committed epochs took.", labels=["job", "step"]
        )
        known = outcomes(history)
        for one in known:
            epochs.add_metric([self._job, one.outcome.value], one.epochs)
        done = [(one.epochs, msgspec.structs.asdict(one.seconds)) for one in known if one.outcome.committed]
        for step in done[0][1] if done else ():
            took = sum(steps[step] or 0.0 for _, steps in done)
            seconds.add_metric([self._job, step], count_value=sum(count for count, _ in done), sum_value=took)
        yield epochs
        yield seconds

    def _checkpoint(self) -> Iterator[Metric]:
        number = GaugeMetricFamily("streamwork_checkpoint", "The newest completed checkpoint.", labels=["job"])
        at = GaugeMetricFamily(
            "streamwork_checkpoint_timestamp_seconds", "When it was completed, since 1970.", labels=["job"]
        )
        if (newest := max(self._store.completed(), default=None)) is not None:
            number.add_metric([self._job], newest)
            with contextlib.suppress(OSError, StopIteration):  # it was pruned this very moment
                at.add_metric([self._job], self._store.written_at(newest))
        yield number
        yield at

    def _lag(self, history: Path) -> Metric:
        family = GaugeMetricFamily(
            "streamwork_lag",
            "Input that no completed checkpoint has read, in the source's unit.",
            labels=["job", "source", "partition", "unit"],
        )
        done = next((one.manifest for one in self._store.stored() if one.completed and one.manifest is not None), None)
        for source, lag in lags(input_ends(history), {} if done is None else done.positions).items():
            for partition, behind in lag.partitions.items():
                family.add_metric([self._job, source, partition, lag.unit], behind)
        return family

    def _marks(self) -> list[Mark]:
        newest = max(self._store.completed(), default=0)
        fences = Fences(self._store.disk, self._store.folder, self._clock, RealProcesses())
        mine = fences.newest()
        found = [] if mine is None else marks(self._store.disk, self._store.folder, mine.fence)
        return [mark for mark in found if mark.epoch > newest]

    def _undone(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "streamwork_waiting_events", "Events that are not done, under acknowledging.", labels=["job", "state"]
        )
        kept = CounterMetricFamily(
            "streamwork_dead_letters", "Dead letters that are kept.", labels=["job", "component"]
        )
        retrying = GaugeMetricFamily(
            "streamwork_retrying_events",
            "Events that a component tries again in place while their checkpoint waits.",
            labels=["job", "component"],
        )
        found = waits(self._store, self._clock.now())
        if not found.problem:
            waiting.add_metric([self._job, "failed"], found.count - found.pending)
            waiting.add_metric([self._job, "pending"], found.pending)
        for component, count in letters(self._store).by_component.items():
            kept.add_metric([self._job, component], count)
        for component, count in Counter(mark.component for mark in self._marks()).items():
            retrying.add_metric([self._job, component], count)
        yield waiting
        yield kept
        yield retrying
