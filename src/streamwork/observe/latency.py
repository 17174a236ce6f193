"""How long events take to the sinks of a job in live mode: the histograms of all its tasks as one, for every reader."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from streamwork.engine.histogram import merged
from streamwork.engine.vitals import LatencyVital, TaskVital

BOUNDS = tuple(sorted({*(float(f"{n}e{power}") for power in range(-4, 2) for n in ("1", "2.5", "5")), 100.0, math.inf}))
"""The upper bounds of the buckets that metrics have, in seconds: some of those that are measured."""


class SinkLatency(msgspec.Struct, frozen=True, kw_only=True):
    """To one sink, in seconds. Percentiles are of the recent time; None if no event came in it."""

    component: str
    staged: bool  # it counts until the row is staged: it becomes visible with its checkpoint
    events: int  # in the recent time
    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    max: float | None
    buckets: tuple[int, ...]  # since the tasks began, by `BOUNDS`: the events that took at most so long
    seconds: float  # since the tasks began, of all events together


class Latency(msgspec.Struct, frozen=True):
    at: float  # when it was measured, in seconds since 1970
    window_seconds: float  # how long the recent time is
    sinks: tuple[SinkLatency, ...]  # by name


def read_latency(tasks: Sequence[TaskVital]) -> Latency | None:
    """None if these tasks measure none."""
    by_sink: dict[str, list[LatencyVital]] = {}
    for task in tasks:
        for one in task.latencies:
            by_sink.setdefault(one.sink, []).append(one)
    if not by_sink:
        return None
    at = max(task.at for task in tasks if task.latencies)
    seconds = max(one.seconds for found in by_sink.values() for one in found)
    return Latency(at, round(seconds, 3), tuple(_sink(name, by_sink[name]) for name in sorted(by_sink)))


def _sink(name: str, found: Sequence[LatencyVital]) -> SinkLatency:
    recent, total = merged(one.recent for one in found), merged(one.total for one in found)
    p50, p90, p99, p999 = (recent.percentile(part) for part in (0.5, 0.9, 0.99, 0.999))
    return SinkLatency(
        component=name,
        staged=any(one.staged for one in found),
        events=recent.events,
        p50=p50,
        p90=p90,
        p99=p99,
        p999=p999,
        max=recent.longest if recent.events else None,
        buckets=total.within(BOUNDS),
        seconds=total.seconds,
    )
