"""Event time with silent partitions (`idle_after`) and with times far in the future (`max_ahead`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.one_by_one import NONE, START, Item
from engine.table_jobs import Waiting, items
from sample import run_job
from streamwork import Job, ListSource, NoState, SqliteSink, TableOperator, WrongUse
from streamwork.components import Slice
from streamwork.components.times import microseconds
from streamwork.delivery import DeadLetters
from streamwork.engine import Assignment, EndKnown
from streamwork.engine.chain import Chain
from streamwork.engine.instance import Instance
from streamwork.engine.steps.staging import read_staged
from streamwork.errors import JobFailed
from streamwork.flow.progress import Progress
from streamwork.testing import SimulatedDisk, run
from streamwork.testing.clock import VirtualClock
from streamwork.testing.markers import Pause
from streamwork.world import RealDisk


def item(number: int, second: float, key: str = "a") -> Item:
    return Item(key, number, START + timedelta(seconds=second))


class Clock(TableOperator[Item, NoState, Item]):
    """Emits, for each row, the minimum before its wave, in seconds."""

    def apply_rows(self, rows: Any, state: Any, tables: Any, collector: Any) -> None:
        found = collector.watermark
        second = "-" if found is None else str(int((found - START).total_seconds()))
        times = [microseconds(at) for at in rows.batch["at"].to_pylist()]
        collector.emit_batch(items(rows.batch["key"], rows.batch["number"], times, second))


def idle_job(idle_after: Any, parallelism: int = 1, operator: Any = None) -> Job:
    job = Job("idle", parallelism=parallelism, checkpoint_every=0)
    lively = job.source(ListSource([], Item), id="lively", time="at", parallelism=1)
    silent = job.source(ListSource([], Item), id="silent", time="at", idle_after=idle_after, parallelism=1)
    both = lively.union(silent)
    both.apply(operator or Waiting("w"), key="key", id="w", parallelism=parallelism).sink(NONE, id="out")
    return job


def numbers(found: Any) -> list[int]:
    return sorted(one.number for one in found.outputs["out"])


LIVELY: Sequence[Any] = [*(item(second, second) for second in range(20)), Pause(30), item(20, 20), item(21, 21)]


def test_a_partition_becomes_idle_where_sources_are_read_by_report() -> None:
    inputs = {"lively": LIVELY, "silent": [item(100, 1)]}
    found = run(idle_job("10s"), inputs, epoch_events=4, ends_known=EndKnown.BY_REPORT)
    assert numbers(found) == [*range(20), 100]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_silent_partition_holds_event_time_back_unless_it_becomes_idle(parallelism: int) -> None:
    inputs = {"lively": LIVELY, "silent": [item(100, 1)]}
    assert numbers(run(idle_job(None, parallelism), inputs, epoch_events=4)) == []
    assert numbers(run(idle_job("10s", parallelism), inputs, epoch_events=4)) == [*range(20), 100]
    assert numbers(run(idle_job("1h", parallelism), inputs, epoch_events=4)) == []


@pytest.mark.parametrize("ends_known", list(EndKnown))
def test_an_instance_without_partitions_does_not_hold_event_time_back(ends_known: EndKnown) -> None:
    """More instances than partitions: those that read none never bring event time."""
    job = Job("unfed", parallelism=2, checkpoint_every=0)
    events = job.source(ListSource([], Item), id="events", time="at", parallelism=3)
    events.apply(Waiting("w"), key="key", id="w").sink(NONE, id="out")
    found = run(job, {"events": LIVELY}, crash_at=(40, 90), epoch_events=4, ends_known=ends_known)
    assert numbers(found) == [*range(20)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_partition_that_never_brought_anything_becomes_idle_too(parallelism: int) -> None:
    assert numbers(run(idle_job("10s", parallelism), {"lively": LIVELY, "silent": []}, epoch_events=4)) == [*range(20)]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("crash", [*range(20, 140, 17)])
def test_idleness_survives_a_restart(parallelism: int, crash: int) -> None:
    inputs = {"lively": LIVELY, "silent": [item(100, 1)]}
    found = run(idle_job("10s", parallelism), inputs, seed=crash, crash_at=crash, epoch_events=3)
    assert numbers(found) == [*range(20), 100]


class Life:
    """One instance that reads both sources, and can be restarted at a checkpoint."""

    def __init__(self) -> None:
        job = Job("wake", checkpoint_every=0)
        lively = job.source(ListSource([], Item), id="lively", time="at")
        silent = job.source(ListSource([], Item), id="silent", time="at", idle_after="10s")
        lively.union(silent).apply(Clock(), key="key", id="w").sink(NONE, id="out")
        self.graph, self.disk = job.graph(), SimulatedDisk()
        self.disk.make_folder(Path("/w"))
        self.work = Assignment(0, "u", "/w", 16, 0, 1, {}, {}, watermarks={"lively/0": None, "silent/0": None})
        self.start()

    def start(self) -> None:
        self.chain = Chain(self.graph)
        self.instance = Instance(self.chain, self.disk, self.work, clock=VirtualClock())

    def epoch(self, second: int, **events: list[Item]) -> dict[int, str]:
        """Returns the clock that each row saw."""
        tick = microseconds(START + timedelta(seconds=second))
        self.work = msgspec.structs.replace(self.work, epoch=self.work.epoch + 1, ticks=(tick,))
        self.instance.begin(self.work, "a")
        self.instance.bring(self.work)
        for source, some in events.items():
            self.chain.process(source, "0", Slice(some, 0))
        self.chain.drain()
        reports = self.instance.finish()
        by_part = [(f"{r.component}/{part}", r) for r in reports for part in r.watermarks]
        idle = {f"{r.component}/{part}": one for r in reports for part, one in r.idle.items()}
        self.work = msgspec.structs.replace(
            self.work,
            watermarks={name: r.watermarks["0"] for name, r in by_part},
            idle=idle,
            floor=min((one.floor for one in idle.values() if one.floor is not None), default=None),
        )
        staged = next(report.staged for report in reports if report.staged is not None)
        rows = [row for some in read_staged(self.disk, Path("/w"), staged) for row in some.to_pylist()]
        return {row["number"]: row["trace"] for row in rows}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_partition_that_wakes_up_does_not_set_event_time_back(restarts: bool) -> None:
    """Not even where a restart follows: the minimum is stored."""
    life = Life()

    def epoch(second: int, **events: list[Item]) -> dict[int, str]:
        if restarts:
            life.start()
        return life.epoch(second, **events)

    assert epoch(0, lively=[item(0, 100)], silent=[item(10, 1)]) == {0: "-", 10: "-"}
    assert epoch(5, lively=[item(1, 100)]) == {1: "1"}, "it holds event time back"
    assert life.instance.chain.next_tick() == START + timedelta(seconds=10)
    assert epoch(10, lively=[item(2, 100)]) == {2: "100"}, "it is idle"
    assert life.instance.chain.next_tick() is None
    assert epoch(11, silent=[item(11, 2)]) == {11: "100"}, "it wakes up"
    assert epoch(12, lively=[item(3, 200)], silent=[item(12, 3)]) == {3: "100", 12: "100"}
    assert epoch(13, lively=[item(4, 200)]) == {4: "100"}, "it holds event time where it is"
    assert epoch(30, lively=[item(5, 200)]) == {5: "200"}, "it is idle again"


def test_the_minimum_of_a_checkpoint_stays_where_an_input_woke_up() -> None:
    progress = Progress()
    progress.resume({"a": 100, "b": 2}, floor=100)
    assert progress.minimum == 100
    progress.expect(["c"])
    assert progress.minimum == 100
    other = Progress()
    other.resume({"a": 100, "b": 2}, idle=["b"])
    assert (other.minimum, other.is_idle("b"), other.all_idle) == (100, True, False)
    other.wake("b")
    assert other.minimum == 100
    control = Progress()
    control.resume({"a": 100, "b": 2})
    assert control.minimum == 2, "the negative control: without the stored minimum it goes back"


# ---- max_ahead ----------------------------------------------------------------------------------------------------


EVENTS = [item(0, 0), item(1, 1), item(2, 366 * 86_400), item(3, 2), item(4, 5)]


def real_job(folder: Path, on_error: Any) -> Job:
    """With the machine's clock and the default."""
    now = datetime.now(UTC) - timedelta(hours=1) - START
    source = ListSource([Item(one.key, one.number, one.at + now) for one in EVENTS], Item)
    source.on_error = on_error
    job = Job("ahead", checkpoint_every=0)
    stream = job.source(source, id="in", time="at").apply(Waiting("w"), key="key", id="w")
    stream.sink(SqliteSink(folder / "out.db", "t"), id="out")
    return job


@pytest.mark.parametrize("on_error", ["drop", "dead-letter"])
def test_an_event_a_year_ahead_does_not_drag_the_watermark(tmp_path: Path, on_error: Any) -> None:
    run_job(real_job(tmp_path, on_error), tmp_path / "root", "local")
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        found = [number for (number,) in db.execute("SELECT number FROM t ORDER BY number")]
    assert found == [0, 1, 3], "4 still waits: the watermark is at 5 s"
    letters = DeadLetters(RealDisk(), tmp_path / "root" / "ahead").all()
    assert [(one.component, "SW-TIME-AHEAD" in one.error) for one in letters] == [("in", True)] * (
        on_error == "dead-letter"
    )


def test_by_default_it_fails_the_job_and_names_the_event(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match=r"SW-TIME-AHEAD.*number=2") as failed:
        run_job(real_job(tmp_path, None), tmp_path / "root", "local")
    assert (failed.value.component, failed.value.about_one_event) == ("in", True)


def test_in_virtual_time_it_applies_where_the_job_sets_it() -> None:
    def job(**more: Any) -> Job:
        job = Job("ahead", checkpoint_every=0, semantics="at-most-once")
        stream = job.source(ListSource([], Item), id="in", time="at", **more)
        stream.apply(Waiting("w"), key="key", id="w").sink(NONE, id="out")
        return job

    free = run(job(), {"in": EVENTS}, epoch_events=2)
    assert numbers(free) == [0, 1, 3, 4], "all that waits was passed by the event a year ahead"
    found = run(job(max_ahead="1h"), {"in": EVENTS}, epoch_events=2)
    assert numbers(found) == [0, 1, 3]
    counts = found.counts["in"]
    assert (counts["processed"], counts["delivered"], counts["dropped"]) == (5, 4, 1)


def test_without_event_time_they_are_refused() -> None:
    with pytest.raises(WrongUse, match="SW-JOB-TIME"):
        Job("j").source(ListSource([], Item), id="in", idle_after="1s")
    with pytest.raises(WrongUse, match="SW-JOB-TIME"):
        Job("j").source(ListSource([], Item), id="in", max_ahead="1s")
