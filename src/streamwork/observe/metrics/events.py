"""Metrics of events: what components have counted, and events that are not done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from streamwork.observe.metrics.metric import Point, counter, gauge
from streamwork.observe.status import JobStatus


def _counts(status: JobStatus, which: str) -> Iterator[Point]:
    for component, counts in status.counts.items():
        for instance, mine in counts.instances.items():
            for kind, number in getattr(mine, which).items():
                yield Point((component, instance, kind), number)


def _waiting(status: JobStatus) -> Iterator[Point]:
    found = status.waiting
    if not found.problem:
        yield Point(("failed",), found.count - found.pending)
        yield Point(("pending",), found.pending)


EVENTS = (
    counter(
        "streamwork_events_total",
        "Events by outcome, in every known attempt.",
        "component instance kind",
        lambda status: _counts(status, "attempted"),
    ),
    counter(
        "streamwork_committed_events_total",
        "The same, in epochs that are committed to every sink.",
        "component instance kind",
        lambda status: _counts(status, "committed"),
    ),
    gauge(
        "streamwork_waiting_events",
        "Events that are not done, under acknowledging: failed (will be replayed), pending (not acknowledged yet).",
        "state",
        _waiting,
    ),
    gauge(
        "streamwork_retrying_events",
        "Events that a component retries in place while their checkpoint waits.",
        "component",
        lambda status: [
            Point((component,), number)
            for component, number in Counter(one.component for one in status.retrying).items()
        ],
    ),
    counter(
        "streamwork_dead_letters_total",
        "Dead letters that are kept.",
        "component",
        lambda status: [Point((name,), number) for name, number in status.dead_letters.by_component.items()],
    ),
)
