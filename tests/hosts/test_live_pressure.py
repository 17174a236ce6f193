"""Backpressure between the tasks of a gang: real files, tasks that are threads, one of them slow."""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangs import GangRun
from live_jobs import Order
from streamwork import EventLog, Instance, Job, LogSource, Operator, SqliteSink, shuffle
from streamwork.engine import live_task, pulse, reading
from streamwork.engine.vitals import TaskVital, clear_vitals, read_vitals
from streamwork.flow import gang_transport
from streamwork.flow.gang_transport import GangTransport
from streamwork.flow.gauge import Bound, Gauge
from streamwork.observe.verdicts import Kind, Signs, judge
from streamwork.observe.verdicts.health import STOPPED_SECONDS
from streamwork.world import RealClock, RealDisk
from waiting import PATIENCE, wait_for

BOUND = 40
SLICE = 10
EVENTS = 600


gate: threading.Event | None = None
"""If there is one, the slow instance waits for it."""


class Slow(Operator[Order, Order]):
    """Instance 1 takes a millisecond for each event."""

    def setup_instance(self, instance: Instance) -> None:
        self.instance = instance

    def apply(self, event: Order, collector: Any) -> None:
        if self.instance == 1:
            if gate is not None:
                gate.wait(PATIENCE)
            time.sleep(0.001)
        collector.emit(event)


class Peak(Gauge):
    """Remembers the most that has waited."""

    made: list[Peak] = []

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.peak = 0
        Peak.made.append(self)

    def add(self, events: int, size: int) -> None:
        super().add(events, size)
        self.peak = max(self.peak, self.events)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small channels, and small slices."""
    monkeypatch.setattr(reading, "MOST_EVENTS", SLICE)
    monkeypatch.setattr(live_task, "GangTransport", partial(GangTransport, bound=Bound(events=BOUND)))
    monkeypatch.setattr(gang_transport, "Gauge", Peak)
    Peak.made = []


class Pressed(GangRun):
    def __init__(self, folder: Path, policy: Any, semantics: Any) -> None:
        self.log = EventLog.create(folder / "log", Order, key="shop", partitions=2)
        for first in range(0, EVENTS, SLICE):
            self.log.append([Order(number, f"shop-{number % 7}") for number in range(first, first + SLICE)])
        job = Job("pressed", checkpoint_every="20ms", semantics=semantics, backpressure=policy)
        orders = job.source(LogSource(folder / "log", Order), id="orders", parallelism=2)
        orders.apply(Slow(), id="slow", grouping=shuffle(), parallelism=2).sink(
            SqliteSink(folder / "out.db", "out"), id="out"
        )
        super().__init__(folder, job)

    def numbers(self) -> list[int]:
        with sqlite3.connect(self.folder / "out.db") as db:
            try:
                return sorted(number for (number,) in db.execute("SELECT number FROM out"))
            except sqlite3.OperationalError:
                return []


@pytest.mark.parametrize("policy", ["sources", "upstream"])
def test_nothing_is_lost_and_what_waits_is_bounded(tmp_path: Path, small: None, policy: str) -> None:
    run = Pressed(tmp_path, policy, "exactly-once")
    run.start()
    run.until(lambda: len(run.numbers()) == EVENTS, "all events")
    run.stop()
    assert run.numbers() == list(range(EVENTS))
    assert any(one.episodes for one in Peak.made), "it was under pressure, and relieved"
    bounds = 2 if policy == "sources" else 1
    assert max(one.peak for one in Peak.made) < bounds * BOUND + SLICE
    assert all(one.events == 0 and one.bytes == 0 for one in Peak.made), "all credit came back"


def test_new_events_for_the_slow_instance_are_dropped_and_counted(tmp_path: Path, small: None) -> None:
    run = Pressed(tmp_path, "drop", "at-most-once")
    run.start()
    by_epoch: dict[int, Counter[str]] = {}

    def counted() -> Counter[str]:
        by_epoch[run.driver.at.epoch] = Counter(run.driver.at.counters.get("slow", {}))
        return sum(by_epoch.values(), Counter())

    run.until(lambda: counted()["processed"] == EVENTS, "all events")
    run.stop()
    slow = counted()
    assert slow["delivered"] + slow["dropped"] == slow["processed"] == EVENTS
    assert len(run.numbers()) == slow["delivered"]
    assert slow["dropped"] == sum(one.dropped for one in Peak.made) > 0


def test_vital_signs_show_the_pressure_and_where_an_instance_hangs(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = threading.Event()
    monkeypatch.setattr(sys.modules[__name__], "gate", opened)
    monkeypatch.setattr(pulse, "FRESH_SECONDS", 0.02)
    monkeypatch.setattr(pulse, "STILL_SECONDS", 0.1)
    run = Pressed(tmp_path, "sources", "exactly-once")
    folder, clock = tmp_path / "root" / "pressed", RealClock()
    found: list[TaskVital] = []

    def is_shown() -> bool:
        found[:] = read_vitals(RealDisk(), folder, 1, clock.now())
        full = any(edge.since for one in found for edge in one.edges)
        return full and any(one.stack for task in found for one in task.instances)

    def watch() -> None:
        try:
            wait_for(is_shown)
        finally:
            opened.set()

    watching = threading.Thread(target=watch)
    run.start()
    watching.start()
    run.until(lambda: len(run.numbers()) == EVENTS, "all events")
    watching.join()
    run.stop()
    (hangs,) = [one for task in found for one in task.instances if one.stack]
    assert hangs.name == "slow[1]" and hangs.busy and hangs.last_event.startswith("Order(")
    assert any("gate.wait" in line for line in hangs.stack)
    now = hangs.moved_at + STOPPED_SECONDS + 1
    verdicts = {one.kind: one for one in judge(Signs(job="pressed", root="r", now=now, tasks=found))}
    assert verdicts[Kind.STOPPED].component == "slow" and verdicts[Kind.STOPPED].instance == 1
    assert (verdicts[Kind.UNDER_PRESSURE].component, verdicts[Kind.UNDER_PRESSURE].instance) == ("slow", 1)
    assert "orders[0]" in verdicts[Kind.UNDER_PRESSURE].stops
    assert all(edge.sent == edge.received + edge.dropped + edge.events for task in found for edge in task.edges)
    clear_vitals(RealDisk(), folder, 2)
    assert read_vitals(RealDisk(), folder, 1, clock.now()) == []
