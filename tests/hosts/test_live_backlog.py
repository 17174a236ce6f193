"""Live mode in a backlog: a checkpoint waits for little of it. Real files, tasks that are threads, an operator that is slow."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangs import GangRun
from live_jobs import Order
from streamwork import EventLog, Instance, Job, LogSource, Operator, SqliteSink, shuffle
from streamwork.components import Position
from streamwork.engine import reading
from streamwork.engine.look import Look
from streamwork.epoch.recovery.catch_up import Leg, Route
from streamwork.flow import drain
from waiting import PATIENCE

EVENTS = 4_000
PARTITIONS = 4
SLOW = 0.000_5
processed = 0


class Slow(Operator[Order, Order]):
    def apply(self, event: Order, collector: Any) -> None:
        global processed
        time.sleep(SLOW)
        processed += 1
        collector.emit(event)


class SlowSecond(Operator[Order, Order]):
    """Instance 1 is slow: it is in another task than the source."""

    def setup_instance(self, instance: Instance) -> None:
        self.instance = instance

    def apply(self, event: Order, collector: Any) -> None:
        global processed
        if self.instance == 1:
            time.sleep(SLOW)
        processed += 1
        collector.emit(event)


class Backlog(GangRun):
    def __init__(self, folder: Path, elsewhere: bool = False) -> None:
        with EventLog.create(folder / "log", Order, key="shop", partitions=PARTITIONS) as log:
            log.append([Order(number, f"shop-{number % 97}") for number in range(EVENTS)])
        job = Job("behind", checkpoint_every="20ms")
        orders = job.source(LogSource(folder / "log", Order), id="orders")
        if elsewhere:
            done = orders.apply(SlowSecond(), id="slow", grouping=shuffle(), parallelism=2)
        else:
            done = orders.apply(Slow(), id="slow")
        done.sink(SqliteSink(folder / "out.db", "out"), id="out")
        super().__init__(folder, job)

    def behind_barriers(self, checkpoints: int) -> Iterator[int]:
        """The events of each checkpoint that were processed when its barrier had been issued."""
        deadline = time.monotonic() + PATIENCE
        before = 0
        while checkpoints and before < EVENTS:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            at_barrier = processed
            if (manifest := self.driver.run_epoch()) is None:
                continue
            count = before + manifest.counters["slow"]["processed"]
            yield max(0, count - at_barrier)
            before, checkpoints = count, checkpoints - 1


@pytest.fixture
def backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Backlog]:
    monkeypatch.setattr(sys.modules[__name__], "processed", 0)
    run = Backlog(tmp_path, elsewhere=bool(getattr(request, "param", False)))
    run.start()
    yield run
    run.host.abandon()
    run.end()


def test_a_checkpoint_waits_for_one_piece_of_one_partition(backlog: Backlog) -> None:
    found = list(backlog.behind_barriers(6))
    assert max(found[2:]) <= 2 * 0.1 / SLOW / PARTITIONS + 50, found


def test_control_a_look_without_measure_makes_a_checkpoint_wait_for_all(
    backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Look, "share", lambda self, partitions, most: most)
    assert max(backlog.behind_barriers(2)) > EVENTS // PARTITIONS // 2


in_another_task = pytest.mark.parametrize("backlog", [True], indirect=True)


@in_another_task
def test_a_checkpoint_waits_for_little_of_what_waits_in_a_channel(
    backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "FIRST", 256)
    found = list(backlog.behind_barriers(3))
    assert max(found) <= 1_000, found


@in_another_task
def test_control_a_channel_with_a_bound_in_events_makes_it_wait(
    backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain.Drain, "took", lambda *_: None)
    monkeypatch.setattr(drain, "FIRST", 65_536)
    assert max(backlog.behind_barriers(2)) > 1_000


def test_a_slice_by_plan_is_read_to_its_end_also_while_its_epoch_closes(
    backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that catches up with a sink goes by the plans of before. The barrier comes at once."""
    monkeypatch.setattr(reading, "MOST_EVENTS", 10)
    start = backlog.driver.at.positions
    end = Position({f"orders/{partition}": 200 for partition in range(PARTITIONS)})
    backlog.driver.follow(Route((Leg(start, start, end, (1,)),), (end,)))
    while (manifest := backlog.driver.run_epoch()) is None:
        time.sleep(0.001)
    assert manifest.positions.of("orders") == end.of("orders")
    assert manifest.counters["slow"]["processed"] == 200 * PARTITIONS
