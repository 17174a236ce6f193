"""Windows on every host: what DuckDB gives, fused and behind an exchange, over a change of host; with open state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from crashes import Crash, CrashAt
from operators.join_jobs import written
from operators.windows.oracle import AGGREGATES, Case, Oracle, Seen, TimeSummary, random_events
from operators.windows.test_idle_inputs import Till
from operators.windows.test_windows import KINDS, NAMES, last_of_each, plain, rows_of
from sample import run_job
from streamwork import Event, EventLog, Job, LogSource, ParquetSink, collect_of
from streamwork.engine import Assignment
from streamwork.epoch import Phase
from streamwork.epoch.assigning import Assigner
from streamwork.job import Layout, windowed
from streamwork.testing import Result

PARTITIONS = 2


def append(folder: Path, events: list[Seen]) -> None:
    with EventLog.create(folder / "log", Seen, key="key", partitions=PARTITIONS, exist_ok=True) as log:
        log.append(events)


def window_job(folder: Path, case: Case, parallelism: int) -> Job:
    job = Job("windows", parallelism=parallelism)
    seen = job.source(LogSource(folder / "log", Seen, max_events=40), id="in", time="at")
    made = seen.window(case.window, key="key", lateness=f"{case.lateness}s", id="w").aggregate(
        TimeSummary, **AGGREGATES
    )
    made.sink(ParquetSink(folder / "out" / "out"), id="out")
    made.channel("late").sink(ParquetSink(folder / "out" / "late"), id="late")
    return job


def check_files(job: Job, folder: Path, case: Case, events: list[Seen]) -> None:
    outputs, oracle = written(job, folder / "out"), Oracle(case, events)
    result = Result(outputs, {}, [], {}, {})
    assert outputs["out"] and outputs["late"]
    assert last_of_each(rows_of(result)) == set(plain(oracle.results(NAMES)))
    assert Counter((one.number, one.late_by) for one in outputs["late"]) == Counter(oracle.late())


@pytest.mark.parametrize("kind", ["sliding", "session"])
@pytest.mark.parametrize("parallelism", [2, 3], ids=["fused", "exchange"])
@pytest.mark.slow(mode="microbatch")
def test_windows_do_not_depend_on_the_host(tmp_path: Path, mode: str, kind: str, parallelism: int) -> None:
    case = Case(KINDS[kind], 3, PARTITIONS, by_key=True, fused=parallelism == PARTITIONS)
    events = random_events(11, 150, 6, 30)
    append(tmp_path, events)
    (tmp_path / "out").mkdir()
    job = window_job(tmp_path, case, parallelism)
    exchanged = any(edge.exchange for edge in Layout.of(job.graph(), 256).edges if edge.to_id == "w")
    assert exchanged is (parallelism == 3)
    run_job(job, tmp_path / "root", mode)
    check_files(job, tmp_path, case, events)


@pytest.mark.spark
def test_hosts_take_over_from_each_other(tmp_path: Path, spark: Any) -> None:
    case, events = Case(KINDS["fixed"], 7, PARTITIONS, fused=True), random_events(12, 150, 6, 30)
    (tmp_path / "out").mkdir()
    for start, mode in ((0, "local"), (50, "microbatch"), (100, "local")):
        append(tmp_path, events[start : start + 50] if start < 100 else events[100:])
        job = window_job(tmp_path, case, 2)
        run_job(job, tmp_path / "root", mode)
    check_files(job, tmp_path, case, events)


class Closed(Event):
    key: str | None
    window_start: datetime
    numbers: list[int]


class CrashWhenWritten(CrashAt):
    """Crashes when an epoch is reported that has written something."""

    def __init__(self, folder: Path) -> None:
        super().__init__(10**9)
        self._folder = folder
        self._before: int | None = None

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        files = len(list(self._folder.rglob("*.parquet")))
        self._before = files if self._before is None else self._before
        if step is Phase.REPORT and files > self._before:
            raise Crash


def interrupted(folder: Path, mode: str) -> list[tuple[str | None, datetime]]:
    """The windows that an at-most-once job has written of which an epoch broke off when it had written: the third one; in live
    mode, where epochs are cut by time, the first one that writes in the second of three runs.
    """
    events = random_events(14, 150, 6, 0)
    lives: list[tuple[list[Seen], CrashAt | None]] = [(events, CrashAt(2, Phase.REPORT)), ([], None)]
    if mode == "live":
        lives = [(events[:50], None), (events[50:100], CrashWhenWritten(folder / "out")), (events[100:], None)]
    for more, watcher in lives:
        append(folder, more)
        job = Job("windows", semantics="at-most-once", parallelism=3)
        seen = job.source(LogSource(folder / "log", Seen, max_events=40), id="in", time="at")
        made = seen.window(KINDS["fixed"], key="key", id="w").aggregate(Closed, numbers=collect_of("number"))
        made.sink(ParquetSink(folder / "out"), id="out")
        with suppress(Crash):
            run_job(job, folder / "root", mode, watcher)
    files = sorted((folder / "out").rglob("*.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return [(row["key"], row["window_start"]) for row in rows]


@pytest.mark.slow(mode="microbatch")
def test_a_window_is_written_at_most_once(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the control: without the record of what was due, some windows are written twice."""
    (tmp_path / "guarded").mkdir()
    found = interrupted(tmp_path / "guarded", mode)
    assert len(found) == len(set(found))
    (tmp_path / "control").mkdir()
    monkeypatch.setattr(Assigner, "assign", _without_parent(Assigner.assign))
    found = interrupted(tmp_path / "control", mode)
    assert len(found) > len(set(found))


def _without_parent(assign: Callable[..., list[Assignment]]) -> Callable[..., list[Assignment]]:
    return lambda *given: [msgspec.structs.replace(one, parent=one.epoch - 1) for one in assign(*given)]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("parallelism", [1, 2])
def test_inputs_become_idle_on_spark(tmp_path: Path, spark: Any, parallelism: int) -> None:
    """`idle_after` by the processing time of plans, stored with each checkpoint."""
    Till(tmp_path, parallelism, "microbatch").become_idle().check_late()


@pytest.mark.slow
@pytest.mark.spark
def test_control_on_spark_a_window_that_does_not_know_of_idle_inputs_emits_again(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    till = Till(tmp_path, 2, "microbatch").become_idle()
    monkeypatch.setattr(windowed, "sources_of", lambda *_: [])
    with pytest.raises(AssertionError):
        till.check_late()


def test_the_state_of_windows_is_open(tmp_path: Path) -> None:
    """The files have the columns of the key, the window and the aggregates."""
    append(tmp_path, random_events(13, 40, 3, 0))
    (tmp_path / "out").mkdir()
    run_job(window_job(tmp_path, Case(KINDS["fixed"]), 1), tmp_path / "root")
    files = sorted((tmp_path / "root" / "windows" / "state" / "w" / "0").glob("*.parquet"))
    names = pq.ParquetFile(files[-1]).schema_arrow.names
    assert names[:3] == ["key", "window_start", "window_end"]
    assert {"events", "total", "mean_sum", "mean_count", "low", "high", "distinct"} <= set(names)
