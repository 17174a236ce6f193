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
from streamwork import EventLog, Job, LogSource, Operator, SqliteSink
from streamwork.components import Position
from streamwork.engine import reading
from streamwork.engine.look import Look
from streamwork.epoch.recovery.catch_up import Leg, Route
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


class Backlog(GangRun):
    def __init__(self, folder: Path) -> None:
        EventLog.create(folder / "log", Order, key="shop", partitions=PARTITIONS).append(
            [Order(number, f"shop-{number % 97}") for number in range(EVENTS)]
        )
        job = Job("behind", checkpoint_every="20ms")
        orders = job.source(LogSource(folder / "log", Order), id="orders")
        orders.apply(Slow(), id="slow").sink(SqliteSink(folder / "out.db", "out"), id="out")
        super().__init__(folder, job)

    def behind_barriers(self, checkpoints: int) -> Iterator[int]:
        """The events of each checkpoint that were processed when its barrier had been issued."""
        deadline = time.monotonic() + PATIENCE
        before = 0
        while checkpoints:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            at_barrier = processed
            if (manifest := self.driver.run_epoch()) is None:
                continue
            count = before + manifest.counters["slow"]["processed"]
            yield max(0, count - at_barrier)
            before, checkpoints = count, checkpoints - 1


@pytest.fixture
def backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backlog]:
    monkeypatch.setattr(sys.modules[__name__], "processed", 0)
    run = Backlog(tmp_path)
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
