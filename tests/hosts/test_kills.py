"""Processes of Spark killed with -9, at seeded random times, while a keyed count behind an exchange runs: Python workers,
executors, a whole worker of a cluster. State and sinks must be what a fold over the input gives.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from by_number import failing
from cluster import command_line, environment, kill, python_workers, standing
from sample import expected_journal, payments, run_job
from streamwork.run.stop_request import request_stop
from streamwork.world import RealClock
from waiting import PATIENCE, wait_for

TESTS = Path(__file__).parents[1]
KILLS = int(os.environ.get("STREAMWORK_KILLS", "20"))
SEED = int(os.environ.get("STREAMWORK_KILL_SEED", random.SystemRandom().randrange(10**6)))
FED = 40
"""Events that come every 50 ms."""

Strike = Callable[[str, random.Random, int], bool]  # what, chosen how, of which driver: True if somebody has died


def add_events(folder: Path, count: int) -> None:
    with (folder / "payments.jsonl").open("a+") as file:
        file.seek(0)
        have = sum(1 for _ in file)
        for event in payments(have + count)[have:]:
            file.write(f'{{"card": "{event.card}", "amount": {event.amount}}}\n')


def newest(folder: Path) -> dict[str, Any]:
    files = [p for p in (folder / "root" / "lost" / "checkpoints").glob("*.json") if p.name.count(".") == 1]
    return json.loads(max(files).read_bytes()) if files else {}


def check(folder: Path, count: int) -> None:
    """Both sinks and the state are what a fold over all the input gives."""
    wanted = expected_journal(payments(count))
    last = {card: (number, total) for card, number, total in wanted}
    with closing(sqlite3.connect(folder / "out.db")) as db:
        journal = db.execute("SELECT card, number, total FROM journal").fetchall()
        latest = db.execute("SELECT card, number, total FROM latest").fetchall()
    assert Counter(journal) == Counter(wanted), "the journal is wrong"
    assert {card: (number, total) for card, number, total in latest} == last, "latest is wrong"
    state: dict[str, tuple[int, int]] = {}
    for chain in newest(folder)["components"]["sums"].values():
        for ref in chain:  # later files win
            for row in pq.ParquetFile(folder / "root" / "lost" / ref["path"]).read().to_pylist():
                state[row["card"]] = row["number"], row["total"]
    assert state == last, "the state is wrong"


@contextlib.contextmanager
def driving(folder: Path, master: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process of its own; whatever becomes of the test, neither it nor its JVM is left."""
    command = command_line("run", str(TESTS / "lost_job.py:job"), "--master", master, "--json")
    with (folder / "driver.txt").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--root", str(folder / "root")],
            cwd=folder,
            env=environment(folder, TESTS),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        for child in family:
            kill(child)


def survive(folder: Path, master: str, plan: list[str], strike: Strike) -> None:
    """Kill by the plan while events come in; then let the job catch up, stop it, and check."""
    rng = random.Random(f"{SEED}/{master.partition(':')[0]}")
    add_events(folder, FED)
    log = folder / "driver.txt"
    with driving(folder, master) as process:
        wait_for(lambda: newest(folder).get("epoch"), process, log)
        began = time.monotonic()
        for kind in plan:
            for _ in range(rng.randint(4, 16)):  # half a second, more or less
                add_events(folder, FED)
                time.sleep(0.05)
            time.sleep(rng.uniform(0, 0.05))
            wait_for(partial(fed_and_struck, folder, partial(strike, kind, rng, process.pid)), process, log)
        add_events(folder, FED)
        size = (folder / "payments.jsonl").stat().st_size
        wait_for(lambda: newest(folder)["positions"]["payments/0"] == size, process, log)
        took = time.monotonic() - began
        request_stop(folder / "root", "lost", PATIENCE, RealClock(), lambda line: None)
        assert process.wait(60) == 0, (folder / "driver.txt").read_text()[-3000:]
    text = (folder / "driver.txt").read_text()
    outcome = json.loads(text[text.rindex("\n{") :] if "\n{" in text else text)
    print(f"{len(plan)} kills {dict(Counter(plan))} in {took:.0f} s; {outcome}")
    check(folder, len((folder / "payments.jsonl").read_text().splitlines()))


def fed_and_struck(folder: Path, strike: Callable[[], bool]) -> bool:
    """While there is nobody to strike, events go on coming: it is the work that makes workers."""
    add_events(folder, FED)
    return strike()


def one_of(found: list[psutil.Process], rng: random.Random) -> bool:
    return bool(found) and kill(rng.choice(found))


def replay() -> str:
    return (
        f"replay with: STREAMWORK_KILL_SEED={SEED} STREAMWORK_KILLS={KILLS} "
        ".venv/bin/python -m pytest -s tests/hosts/test_kills.py"
    )


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600 + 20 * KILLS)
def test_python_workers_may_die_at_any_time(tmp_path: Path) -> None:
    print(replay())

    def strike(kind: str, rng: random.Random, driver: int) -> bool:
        below = psutil.Process(driver).children(recursive=True)
        return one_of([worker for process in below for worker in python_workers(process.pid)], rng)

    survive(tmp_path, "local[2]", ["python"] * (KILLS // 2), strike)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600 + 20 * KILLS)
def test_executors_and_machines_may_die_at_any_time(tmp_path: Path) -> None:
    print(replay())
    kills = KILLS - KILLS // 2
    plan = ["python", "executor", "python", "executor", "machine"] * kills
    plan = random.Random(SEED).sample(plan[:kills], kills)
    with standing(tmp_path) as cluster:

        def strike(kind: str, rng: random.Random, driver: int) -> bool:
            if kind == "machine":
                cluster.lose_worker(rng.choice(cluster.workers))
                cluster.add_worker()
                return True
            return one_of(cluster.executors() if kind == "executor" else cluster.python_workers(), rng)

        survive(tmp_path, cluster.url, plan, strike)


def fail_and_go_on(folder: Path, by_number: bool) -> None:
    """A job that fails several times when some of its state is computed already, each time once, on one Spark."""
    count = 100
    outcome = run_job(failing(folder, payments(count), by_number), folder / "root", "microbatch", restart=True)
    assert outcome.restarts > 5
    check(folder, count)


@pytest.mark.slow
@pytest.mark.spark
def test_what_a_failed_attempt_leaves_in_its_process_is_not_used(tmp_path: Path, spark: Any) -> None:
    fail_and_go_on(tmp_path, by_number=False)


@pytest.mark.slow
@pytest.mark.spark
def test_with_a_cache_by_number_the_same_test_fails(tmp_path: Path, spark: Any) -> None:
    def wrong(folder: Path) -> bool:
        folder.mkdir()
        try:
            fail_and_go_on(folder, by_number=True)
        except AssertionError as error:
            return "journal is wrong" in str(error)
        return False

    try:  # which process Spark gives a task to is chance: once in four runs is enough, and the first is all but sure
        assert any(wrong(tmp_path / str(attempt)) for attempt in range(4))
    finally:  # the processes that have this cache
        for worker in python_workers(spark.sparkContext._gateway.proc.pid):
            kill(worker)
