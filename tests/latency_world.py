"""A live job that runs in this process, with the vital signs of two more tasks whose latencies to one more sink are known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hosts.test_live import Live, counting
from streamwork.engine import pulse
from streamwork.engine.histogram import Histogram
from streamwork.engine.vitals import LatencyVital, TaskVital, write_vitals
from streamwork.observe.latency import SinkLatency
from streamwork.observe.status import read_status
from streamwork.world import RealClock, RealDisk

KNOWN = "known"
TIMES = {0.002: 980, 0.016: 15, 0.8: 5}
"""Seconds -> events, of the sink `known`, in both tasks together."""


def vital(times: dict[float, int], sink: str = KNOWN, staged: bool = False, seconds: float = 10.0) -> LatencyVital:
    found = Histogram()
    for took, events in times.items():
        found = found.add(took, events)
    return LatencyVital(sink=sink, staged=staged, seconds=seconds, recent=found, total=found.merge(found))


def task(name: str, *latencies: LatencyVital, fence: int = 1, at: float | None = None) -> TaskVital:
    now = RealClock().now() if at is None else at
    return TaskVital(fence=fence, task=name, pid=1, host="here", at=now, latencies=latencies)


class Shown:
    def __init__(self, live: Live) -> None:
        self.live = live
        self.root = live.folder / "root"
        self.job = live.job.name
        self.known_again()

    def known_again(self) -> None:
        """The vital signs of the two tasks, as new as those of the others."""
        folder = self.root / self.job
        write_vitals(RealDisk(), folder, task("known0", vital({0.002: 480, 0.8: 5}), fence=self.live.driver.fence))
        write_vitals(RealDisk(), folder, task("known1", vital({0.002: 500, 0.016: 15}), fence=self.live.driver.fence))

    def sinks(self) -> dict[str, SinkLatency]:
        """As they are read now."""
        self.known_again()
        found = read_status(self.root, self.job, RealClock()).latency
        return {} if found is None else {one.component: one for one in found.sinks}


@contextmanager
def measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    """When events have come to the sink `out`, too."""
    monkeypatch.setattr(pulse, "FRESH_SECONDS", 0.02)
    live = counting(folder, semantics="at-least-once")
    live.start()
    try:
        shown = Shown(live)
        live.send(70)
        live.until(
            lambda: "out" in (found := shown.sinks()) and found["out"].buckets[-1] == 70, "latencies of all events"
        )
        yield shown
    finally:
        live.end()
        live.log.close()
