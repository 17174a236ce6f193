"""The fault matrix in live mode, with gangs of threads: the points of a driver, and those that only a gang has."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crashes import Crash
from gangs import ThreadLauncher
from hosts.test_live import expected
from live_jobs import Count, Counting, Order
from streamwork import EventLog, Job, LogSink, LogSource, SqliteSink
from streamwork.engine.claiming import Claiming
from streamwork.engine.live_task import LiveTask
from streamwork.epoch import Driver, Phase, Store
from streamwork.errors import JobFailed
from streamwork.hosts.gang import GangHost
from streamwork.log import LogReader
from streamwork.world import RealClock, RealDisk
from tiers import covering, pairs
from waiting import PATIENCE

PHASES = [Phase.PLAN, Phase.REPORT, Phase.PREPARE, Phase.COMMIT, Phase.COMPLETE]
GANG = ["during a barrier", "after some reports", "files written behind", "between claim and read"]
PROMISES = {
    "exactly-once": ("exactly-once", "read-committed"),
    "read-uncommitted": ("exactly-once", "read-uncommitted"),
    "at-least-once": ("at-least-once", "read-committed"),
    "at-most-once": ("at-most-once", "read-committed"),
}
FIRST, STRUCK, LAST = 40, 40, 20
"""Events before the fault is armed, behind that, and after the restart."""


class Cell(NamedTuple):
    point: str
    sink: str
    promise: str
    parallelism: int

    @property
    def name(self) -> str:
        return f"{self.point}, {self.sink}, {self.promise}, {self.parallelism}"


def cells() -> list[Cell]:
    every = [
        Cell(point, sink, promise, parallelism)
        for point in [*(phase.value for phase in PHASES), *GANG]
        for sink in ("table", "log")
        for promise in PROMISES
        for parallelism in (1, 3)
        if (sink, promise) != ("log", "read-uncommitted")
        and (point != Phase.COMMIT.value or PROMISES[promise][0] == "exactly-once")
        and (point != GANG[1] or parallelism > 1)  # one instance reports at once
        and (point != GANG[3] or promise == "at-most-once")
    ]
    return covering(every, lambda cell: pairs(*cell))


class World:
    """One cell: a driver breaks, and another one goes on."""

    def __init__(self, folder: Path, cell: Cell) -> None:
        self.folder, self.cell = folder, cell
        self.semantics, self._isolation = PROMISES[cell.promise]
        self.log = EventLog.create(folder / "log", Order, key="shop", partitions=2)
        self.sent = 0
        self.armed = self.struck = False
        self.launcher: ThreadLauncher

    def job(self) -> Job:
        job = Job("live", semantics=self.semantics, checkpoint_every=0)  # type: ignore[arg-type]
        orders = job.source(LogSource(self.folder / "log", Order), id="orders")
        counts = orders.apply(Counting(), key="shop", id="counting", parallelism=self.cell.parallelism)
        sink: Any = LogSink(self.folder / "out", key="shop", partitions=2)
        if self.cell.sink == "table":
            sink = SqliteSink(self.folder / "out.db", "out")
        counts.sink(sink, id="out", isolation=self._isolation)  # type: ignore[arg-type]
        return job

    def start(self) -> None:
        job, self.launcher = self.job(), ThreadLauncher()
        self.host = GangHost(self.launcher)
        self.host.open(job.graph())
        store = Store(RealDisk(), self.folder / "root", "live")
        self.driver = Driver(
            job.graph(), job.settings, store, self.host, RealClock(), lambda: "a" * 32, listener=self, take_over=True
        )
        self.driver.start()

    def on_phase(self, phase: Phase, epoch: int, manifest: Any) -> None:
        if self.strikes(phase.value):
            raise Crash

    def strikes(self, point: str) -> bool:
        """True once, where the fault is."""
        if not self.armed or self.struck or point != self.cell.point:
            return False
        self.struck = True
        return True

    def send(self, count: int) -> None:
        self.log.append([Order(self.sent + i, f"shop-{(self.sent + i) % 7}") for i in range(count)])
        self.sent += count

    def rows(self) -> list[tuple[str, int, int]]:
        if self.cell.sink == "log":
            if not (self.folder / "out" / "log.json").exists():
                return []
            with LogReader(self.folder / "out", Count) as reader:
                found = [one.event for one in reader.last(10**6)]
            return sorted(((one.shop, one.number, one.nth) for one in found), key=lambda row: row[1])
        with sqlite3.connect(self.folder / "out.db") as db, suppress(sqlite3.OperationalError):
            return list(db.execute("SELECT shop, number, nth FROM out ORDER BY number"))
        return []

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"{len(self.rows())} rows of {self.sent}"
            self.driver.run_epoch()
            time.sleep(0.002)

    def kill(self) -> None:
        """As kill -9 of the driver and its tasks."""
        with suppress(AttributeError):
            self.launcher.lose()
        self.host.close()

    def run(self) -> None:
        self.start()
        self.send(FIRST)
        self.until(lambda: {number for _, number, _ in self.rows()} >= set(range(FIRST)))
        self.until(lambda: sum(self.driver.at.positions.of("orders").values()) == FIRST)
        self.armed = True
        self.send(STRUCK)
        with suppress(Crash, JobFailed):
            self.until(lambda: False)
        assert self.struck, "the fault never came"
        self.kill()
        self.start()
        self.send(LAST)
        self.until(lambda: sum(self.driver.at.positions.of("orders").values()) == self.sent)
        while self.driver.run_epoch(last=True) is not None:
            """Complete what is in flight."""
        self.driver.close()
        self.host.close()
        self.log.close()

    def check(self) -> None:
        rows = self.rows()
        if self.semantics == "exactly-once":
            assert rows == expected(self.sent)
            return
        counts, open_ones = Counter(number for _, number, _ in rows), set(range(FIRST, FIRST + STRUCK))
        everything = set(range(self.sent))
        assert counts.keys() <= everything
        if self.semantics == "at-least-once":
            assert counts.keys() == everything
            assert {number for number, times in counts.items() if times > 1} <= open_ones
        else:
            assert max(counts.values()) == 1
            assert everything - counts.keys() <= open_ones


def with_faults(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The points of a gang."""
    is_complete, report, reach = GangHost._is_complete, LiveTask._report, Claiming.reach

    def complete(self: GangHost, gang: Any, epoch: int) -> bool:
        found = is_complete(self, gang, epoch)
        if not found and world.strikes(GANG[0]):
            world.launcher.lose()
        return found

    def reported(self: LiveTask, *given: Any) -> None:
        if world.strikes(GANG[2]):
            world.launcher.die()
        report(self, *given)
        if world.strikes(GANG[1]):
            world.launcher.die()

    def reached(self: Claiming, *given: Any) -> None:
        reach(self, *given)
        if world.strikes(GANG[3]):
            world.launcher.die()

    monkeypatch.setattr(GangHost, "_is_complete", complete)
    monkeypatch.setattr(LiveTask, "_report", reported)
    monkeypatch.setattr(Claiming, "reach", reached)


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name, marks=pytest.mark.slow) for cell in cells()])
def test_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: Cell) -> None:
    world = World(tmp_path, cell)
    with_faults(world, monkeypatch)
    world.run()
    world.check()


def test_there_are_enough_cells() -> None:
    assert len(cells()) >= 25


def test_a_checker_can_fail(tmp_path: Path) -> None:
    """What one promise allows another one does not."""
    for promise, numbers in (
        ("exactly-once", [0, 1, 1]),
        ("exactly-once", [0, 2]),
        ("at-least-once", [0, 2]),
        ("at-most-once", [0, 1, 1, 2]),
    ):
        world = World(tmp_path / f"{promise}-{len(numbers)}", Cell("", "table", promise, 1))
        world.sent = 3
        world.rows = lambda numbers=numbers: [("shop", n, 1) for n in numbers]  # type: ignore[method-assign]
        with pytest.raises(AssertionError):
            world.check()
