"""Live mode without Spark: real drivers, real files, and gangs whose tasks are threads."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gangs import GangRun
from live_jobs import Counting, Fragile, Moody, Order, Waiting
from streamwork import EventLog, Job, LogSource, SqliteSink
from streamwork.epoch import Driver, Store
from streamwork.world import RealClock, RealDisk
from waiting import wait_for


class Live(GangRun):
    """A job on one log."""

    def __init__(self, folder: Path, job: Job) -> None:
        super().__init__(folder, job)
        self.log = EventLog.create(folder / "log", Order, key="shop", partitions=2, exist_ok=True)
        self.sent = 0

    def send(self, count: int) -> None:
        self.log.append([Order(self.sent + i, f"shop-{(self.sent + i) % 7}") for i in range(count)])
        self.sent += count

    def rows(self) -> list[tuple[str, int, int]]:
        if not (self.folder / "out.db").exists():
            return []
        with sqlite3.connect(self.folder / "out.db") as db:
            try:
                return list(db.execute("SELECT shop, number, nth FROM out ORDER BY number"))
            except sqlite3.OperationalError:
                return []


def expected(count: int) -> list[tuple[str, int, int]]:
    seen: Counter[str] = Counter()
    found = []
    for number in range(count):
        shop = f"shop-{number % 7}"
        seen[shop] += 1
        found.append((shop, number, seen[shop]))
    return found


def counting(folder: Path, operator: Any = None, *, apply: dict[str, Any] | None = None, **options: Any) -> Live:
    job = Job("live", **{"checkpoint_every": "50ms", **options})
    orders = job.source(LogSource(folder / "log", Order), id="orders", parallelism=options.get("parallelism"))
    orders.apply(operator or Counting(), key="shop", id="counting", **(apply or {})).sink(
        SqliteSink(folder / "out.db", "out"), id="out"
    )
    return Live(folder, job)


@contextmanager
def started(live: Live) -> Iterator[Live]:
    live.start()
    try:
        yield live
    finally:
        live.end()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_exactly_once_while_events_come(tmp_path: Path, parallelism: int) -> None:
    live = counting(tmp_path, parallelism=parallelism)
    live.start()
    for _ in range(5):
        live.send(20)
        live.checkpoint()
    live.until(lambda: len(live.rows()) == 100, "all rows")
    live.stop()
    assert live.rows() == expected(100)
    assert live.launcher.launched == 1, "one gang for all epochs"


def test_a_stop_drains_and_takes_a_last_checkpoint(tmp_path: Path) -> None:
    live = counting(tmp_path)
    live.start()
    live.send(50)
    live.until(lambda: bool(live.rows()), "a row")
    live.send(30)
    wait_for(live.host.moved)
    live.stop()
    rows = live.rows()
    live.start()
    live.until(lambda: len(live.rows()) == 80, "all rows")
    live.stop()
    assert rows == expected(80)[: len(rows)] and live.rows() == expected(80)


def test_while_nothing_comes_there_are_no_checkpoints(tmp_path: Path) -> None:
    live = counting(tmp_path)
    with started(live):
        live.send(5)
        live.until(lambda: len(live.rows()) == 5, "all rows")
        before = live.driver.at.epoch
        for _ in range(20):
            assert live.driver.run_epoch() is None
            time.sleep(0.005)
        assert live.driver.at.epoch == before
        live.send(1)
        live.until(lambda: len(live.rows()) == 6, "the last row")


def test_a_lost_gang_ends_the_driver_and_the_next_one_goes_on(tmp_path: Path) -> None:
    live = counting(tmp_path, parallelism=2)
    live.start()
    live.send(40)
    live.until(lambda: len(live.rows()) == 40, "the first rows")
    live.send(40)
    live.lose()
    live.start()
    live.until(lambda: len(live.rows()) == 80, "all rows")
    live.stop()
    assert live.rows() == expected(80)


def test_state_moves_between_modes(tmp_path: Path) -> None:
    from streamwork.hosts.local import LocalHost

    live = counting(tmp_path)
    for round_ in range(4):
        live.send(25)
        live.start()
        live.until(lambda: len(live.rows()) == live.sent, "all rows")
        live.stop()
        live.send(15)
        driver = Driver(
            live.job.graph(),
            live.job.settings,
            Store(RealDisk(), tmp_path / "root", "live"),
            LocalHost(RealDisk()),
            RealClock(),
            lambda: "f" * 32,
            take_over=True,
        )
        driver.start()
        while driver.run_epoch() is not None:
            """Until there is nothing new."""
        driver.close()
        assert live.rows() == expected(live.sent), round_


def test_timers_of_processing_time_fire_without_events(tmp_path: Path) -> None:
    live = counting(tmp_path, Waiting(), semantics="at-most-once")
    with started(live):
        live.until(lambda: live.driver.at.epoch > 0, "the first checkpoint")
        live.send(7)
        wait_for(lambda: len(live.rows()) >= 7)
        assert [number for _, number, _ in live.rows()] == list(range(7)), "without a checkpoint"


def test_at_most_once_writes_at_once_and_never_twice(tmp_path: Path) -> None:
    live = counting(tmp_path, semantics="at-most-once")
    live.start()
    live.send(30)
    live.until(lambda: len(live.rows()) >= 30, "rows")
    live.send(30)
    wait_for(lambda: len(live.rows()) >= 60)  # no checkpoint: the rows are written, and no manifest knows it
    live.lose()
    live.start()
    assert live.driver.in_doubt, "what was claimed beyond the checkpoint is in doubt"
    live.send(30)
    live.until(lambda: any(number >= 60 for _, number, _ in live.rows()), "new rows")
    live.stop()
    numbers = Counter(number for _, number, _ in live.rows())
    assert max(numbers.values()) == 1 and set(range(30)) <= numbers.keys()


def test_without_claims_at_most_once_writes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamwork.engine.live_task.LiveTask._write_claim", lambda self, offsets: None)
    with pytest.raises(AssertionError):
        test_at_most_once_writes_at_once_and_never_twice(tmp_path)


@pytest.mark.parametrize("what", ["exit", "hang", "raise"])
def test_trouble_in_an_isolated_component_costs_its_results_only(tmp_path: Path, what: str) -> None:
    folder = tmp_path
    job = Job("live", semantics="at-most-once", checkpoint_every="50ms")
    orders = job.source(LogSource(folder / "log", Order), id="orders")
    orders.apply(Counting(), key="shop", id="counting").sink(SqliteSink(folder / "out.db", "out"), id="out")
    deadline = "5s" if what == "hang" else "1h"  # a busy machine may take long for one event
    orders.apply(Fragile(folder), key="shop", id="fragile", deadline=deadline).sink(
        SqliteSink(folder / "fragile.db", "fragile"), id="fragile-out"
    )
    live = Live(folder, job)

    def fragile() -> set[int]:
        with sqlite3.connect(folder / "fragile.db") as db:
            try:
                return {number for (number,) in db.execute("SELECT number FROM fragile")}
            except sqlite3.OperationalError:
                return set()

    def goes_on() -> bool:
        """Sends one event after the other: those that come while it restarts are dropped."""
        live.send(1)
        return max(fragile(), default=-1) > struck

    with started(live):
        live.send(7)
        live.until(lambda: len(live.rows()) == 7 and len(fragile()) == 7, "the first rows")
        first = (folder / "pid").read_text()
        struck = live.sent
        (folder / "trouble").write_text(what)
        live.send(1)
        live.until(lambda: len(live.rows()) == 8 and not (folder / "trouble").exists(), "the flow goes on")
        live.until(goes_on, "it is back")
        assert struck not in fragile(), "the result of the event in trouble is lost"
        assert ((folder / "pid").read_text() != first) == (what != "raise"), "a process that ended was replaced"
        live.until(lambda: len(live.rows()) == live.sent, "nothing else is missing")
        counted = live.driver.at.counters["fragile"]
        assert counted["processed"] == counted["delivered"] + counted["dropped"] + counted["ended_early"]
        live.stop()
    assert live.rows() == expected(live.sent)


def acknowledging(folder: Path, times: int, **options: Any) -> Live:
    job = Job("live", semantics="at-least-once", tracking="acknowledge", checkpoint_every="50ms", **options)
    orders = job.source(LogSource(folder / "log", Order), id="orders")
    orders.apply(Moody(folder, times), key="shop", id="moody", on_error="dead-letter").sink(
        SqliteSink(folder / "out.db", "out"), id="out"
    )
    return Live(folder, job)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_failed_event_is_replayed_at_once(tmp_path: Path, parallelism: int) -> None:
    live = acknowledging(tmp_path, 1, retry_after="1h", parallelism=parallelism)
    with started(live):
        live.until(lambda: live.driver.at.epoch > 0, "the first checkpoint")
        live.send(9)
        wait_for(lambda: len(live.rows()) >= 9)  # no checkpoint is taken
        numbers = [number for _, number, _ in live.rows()]
        assert sorted(numbers) == list(range(9)), "each is written once, in spite of its failure"
        live.stop()
    counted = live.driver.at.counters
    assert not live.driver.unsettled(), "the driver has nothing to do again"
    assert (counted["moody"]["failed"], counted["orders"]["replayed"]) == (3, 3)


def test_what_fails_again_waits_and_is_at_last_a_dead_letter(tmp_path: Path) -> None:
    live = acknowledging(tmp_path, 99, retry_after="0s", max_attempts=3)
    with started(live):
        live.send(4)
        letters = tmp_path / "root" / "live" / "dead-letters"
        live.until(lambda: letters.exists() and any(one.is_file() for one in letters.rglob("*")), "the dead letters")
        live.until(lambda: not live.driver.unsettled(), "nothing waits")
        live.stop()
    assert sorted(number for _, number, _ in live.rows()) == [1, 2]
    assert [len((tmp_path / f"tries-{number}").read_text()) for number in (0, 3)] == [3, 3], "as often as max_attempts"


def test_without_the_note_of_the_source_a_replayed_event_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamwork.epoch.redelivery.first", lambda root: None)
    with pytest.raises(Exception):  # noqa: B017  (the driver does not know the root, or replays it once more)
        test_a_failed_event_is_replayed_at_once(tmp_path, 1)
