"""Metrics of epochs, checkpoints and the state in them."""

from __future__ import annotations

from collections.abc import Iterator

from streamwork.epoch.history.durations import BOUNDS
from streamwork.observe.metrics.metric import Buckets, Point, counter, gauge, histogram, known
from streamwork.observe.status import JobStatus


def _steps(status: JobStatus) -> Iterator[Buckets]:
    for one in status.durations:
        if not one.sink:
            yield Buckets((one.step,), BOUNDS, one.buckets, one.seconds)


def _sinks(status: JobStatus) -> Iterator[Buckets]:
    for one in status.durations:
        if one.sink:
            yield Buckets((one.sink,), BOUNDS, one.buckets, one.seconds)


CHECKPOINTS = (
    counter(
        "streamwork_epochs_total",
        "Epochs by outcome: completed, abandoned, failed, rolled-forward.",
        "outcome",
        lambda status: [Point((outcome,), counts.epochs) for outcome, counts in status.epochs.items()],
    ),
    histogram(
        "streamwork_epoch_seconds",
        "Duration of the steps of committed epochs: plan, compute, prepare, commit, complete, prune.",
        "step",
        _steps,
    ),
    histogram("streamwork_sink_commit_seconds", "Duration of one sink's part of the step commit.", "sink", _sinks),
    gauge("streamwork_checkpoint", "The newest completed checkpoint.", "", lambda status: known(status.checkpoint)),
    gauge(
        "streamwork_checkpoint_timestamp_seconds",
        "When the newest checkpoint was completed, since 1970.",
        "",
        lambda status: known(status.completed_at),
    ),
    gauge(
        "streamwork_checkpoint_interval_seconds",
        "The shortest time between two checkpoints, as configured.",
        "",
        lambda status: known(status.checkpoint_every),
    ),
    gauge(
        "streamwork_prepared_checkpoints",
        "Checkpoints that are prepared and not completed yet.",
        "",
        lambda status: known(len(status.prepared)),
    ),
    gauge(
        "streamwork_quarantined_checkpoints",
        "Checkpoints that a start has set aside.",
        "",
        lambda status: known(len(status.quarantined)),
    ),
    gauge(
        "streamwork_state_keys",
        "Keys in the state of a component, at the newest checkpoint.",
        "component",
        lambda status: [Point((name,), one.keys) for name, one in status.states.items() if one.keys is not None],
    ),
    gauge(
        "streamwork_state_bytes",
        "Size of the state files that the newest checkpoint names.",
        "component instance",
        lambda status: [
            Point((name, instance), size) for name, one in status.states.items() for instance, size in one.bytes.items()
        ],
    ),
)
