"""Windows and joins in live mode are those of DuckDB, whenever gangs are lost: exactly-once, with and without an exchange."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangs import ThreadLauncher
from hosts.test_joins import KEYS, in_partitions, logs
from hosts.test_joins import PARTITIONS as JOINED
from hosts.test_windows import PARTITIONS, append, check_files, window_job
from operators.join_jobs import expected_within, found, random_rows, two_streams, written
from operators.join_oracle import Oracle
from operators.windows.oracle import Case, random_events
from operators.windows.test_windows import KINDS
from sample import run_job
from streamwork import Job
from streamwork.engine import Assignment
from streamwork.epoch import Driver, Store
from streamwork.epoch.assigning import Assigner
from streamwork.errors import JobFailed
from streamwork.hosts.gang import GangHost
from streamwork.world import RealClock, RealDisk
from tiers import quick_every


def life(job: Job, root: Path, rng: random.Random, send: Callable[[], None]) -> bool:
    """One driver, whose gang is lost at some time. True if that was in the middle of its work."""
    launcher = ThreadLauncher()
    host, graph = GangHost(launcher), job.graph()
    host.open(graph)
    store = Store(RealDisk(), root, job.name)
    driver = Driver(
        graph, job.settings, store, host, RealClock(), lambda: f"{rng.getrandbits(128):032x}", take_over=True
    )
    driver.start()
    try:
        for _ in range(rng.randint(1, 3)):
            driver.run_epoch()
        send()
        if rng.random() < 0.5:
            driver.run_epoch()
        time.sleep(rng.random() * 0.02)
        launcher.lose()
        with suppress(JobFailed):
            for _ in range(100):
                driver.run_epoch()
            return False
        return True
    finally:
        driver.close()
        host.close()


def walk(job: Callable[[], Job], root: Path, seed: int, send: Callable[[int, int], None], count: int) -> None:
    """Events come in pieces; a gang is lost after each. Then the job catches up."""
    rng, lost, at = random.Random(seed), 0, 0
    while at < count:
        end = min(count, at + rng.randint(20, 60))

        def more(start: int = at, stop: int = end) -> None:
            send(start, stop)

        lost += life(job(), root, rng, more)
        at = end
    assert lost, "no gang was lost"
    run_job(job(), root, "live")


def windows(folder: Path, seed: int, parallelism: int) -> None:
    kind = random.Random(seed).choice(["fixed", "sliding", "session"])
    case = Case(KINDS[kind], 3, PARTITIONS, by_key=True)
    events = random_events(seed, 150, 6, 30)
    append(folder, [])
    (folder / "out").mkdir()
    walk(
        lambda: window_job(folder, case, parallelism),
        folder / "root",
        seed,
        lambda start, end: append(folder, events[start:end]),
        len(events),
    )
    check_files(window_job(folder, case, parallelism), folder, case, events)


@pytest.mark.usefixtures("gang_of_threads")
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("seed", quick_every(5, range(5)))
def test_windows(tmp_path: Path, seed: int, parallelism: int) -> None:
    windows(tmp_path, seed, parallelism)


@pytest.mark.usefixtures("gang_of_threads")
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("seed", quick_every(5, range(5)))
def test_joins(tmp_path: Path, seed: int, parallelism: int, duck: Any) -> None:
    rows = in_partitions(random_rows(seed, 160, 1, KEYS, 6))
    (out := tmp_path / "out").mkdir()
    sources = logs(tmp_path, [], "user", 25)
    walk(
        lambda: two_streams("full", 3, 2, parallelism, sources, out),
        tmp_path / "root",
        seed,
        lambda start, end: logs(tmp_path, rows[start:end], "user", 25),
        len(rows),
    )
    job = two_streams("full", 3, 2, parallelism, sources, out)
    expected = expected_within(Oracle(duck, rows, JOINED), "full", 3, 2)
    assert found(written(job, out), "right") == expected


@pytest.mark.usefixtures("gang_of_threads")
def test_without_the_state_the_same_test_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assign = Assigner.assign

    def forgetful(self: Assigner, *given: Any) -> list[Assignment]:
        return [msgspec.structs.replace(one, states={}) for one in assign(self, *given)]

    monkeypatch.setattr(Assigner, "assign", forgetful)
    with pytest.raises(AssertionError):
        windows(tmp_path, 0, 3)
