"""Metrics of channels and instances, from the vital signs of tasks: modes local and live."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamwork.engine.vitals import EdgeVital, InstanceVital
from streamwork.observe.metrics.metric import Point, counter, gauge
from streamwork.observe.status import JobStatus


def _edges(value: Callable[[EdgeVital], float | None]) -> Callable[[JobStatus], Iterable[Point]]:
    return lambda status: [
        Point((one.sender, one.receiver), number) for one in status.edges if (number := value(one)) is not None
    ]


def _instances(value: Callable[[InstanceVital], float]) -> Callable[[JobStatus], Iterable[Point]]:
    return lambda status: [Point((one.components[0], str(one.instance)), value(one)) for one in status.instances]


CHANNELS = (
    gauge(
        "streamwork_channel_waiting_events",
        "Events that wait in a channel between two instances, which are named like per-card[0].",
        "sender receiver",
        _edges(lambda edge: edge.events),
    ),
    gauge(
        "streamwork_channel_limit_events",
        "The number of waiting events at which the channel is full. Missing if it has no such bound.",
        "sender receiver",
        _edges(lambda edge: edge.most_events),
    ),
    gauge(
        "streamwork_channel_waiting_bytes",
        "About how many bytes the waiting events take.",
        "sender receiver",
        _edges(lambda edge: edge.bytes),
    ),
    gauge(
        "streamwork_channel_full",
        "1 while a channel is full.",
        "sender receiver",
        _edges(lambda edge: edge.since is not None),
    ),
    counter(
        "streamwork_channel_full_seconds_total",
        "How long a channel was full, since its task began.",
        "sender receiver",
        _edges(lambda edge: edge.full_seconds),
    ),
    counter(
        "streamwork_channel_dropped_events_total",
        "Events dropped before a full channel, by policy, since its task began.",
        "sender receiver",
        _edges(lambda edge: edge.dropped),
    ),
    gauge(
        "streamwork_instance_busy",
        "1 while an instance is in the middle of a turn. It is named by the first component of its chain.",
        "component instance",
        _instances(lambda one: one.busy),
    ),
    gauge(
        "streamwork_instance_waiting_items",
        "Items (batches, watermarks, checkpoint events) at the inputs of an instance.",
        "component instance",
        _instances(lambda one: one.waiting),
    ),
    gauge(
        "streamwork_instance_moved_timestamp_seconds",
        "When an instance last processed something, or had nothing to do, since 1970.",
        "component instance",
        _instances(lambda one: one.moved_at),
    ),
)
