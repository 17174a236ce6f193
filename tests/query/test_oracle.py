"""The oracle: while a job runs and is killed with -9, thousands of answers are recorded, each with its checkpoint. Each must be the
fold of the input up to that checkpoint's positions.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from query.killed_job import ANSWERS
from query.killed_job import events as events_of
from query.query_jobs import by_order, by_shop, fold, values
from query.serving_world import Served, serving, wait_for
from streamwork import JobFailed, query
from streamwork.epoch.job_folder import open_store
from streamwork.query.component import ComponentState

TESTS = Path(__file__).parents[1]
SEED = int(os.environ.get("STREAMWORK_KILL_SEED", random.SystemRandom().randrange(10**6)))
BY = {"by-shop": by_shop, "by-order": by_order}


class Recorded(NamedTuple):
    component: str
    epoch: int
    committed: bool
    asked: Any  # keys; None: all
    found: dict[Any, Any]


def record(state: query.State, consistency: str, keys: dict[str, list[Any]], seed: str) -> Iterator[Recorded]:
    """Random questions, one after the other."""
    rng = random.Random(seed)
    while True:
        name = rng.choice([*BY])
        component = state[name]
        if rng.random() < 0.4:
            asked = rng.sample(keys[name], 8)
            many = component.get_many(asked, consistency=consistency)
            found = {key: values(one) for key, one in zip(asked, many.records, strict=True) if one is not None}
            yield Recorded(name, many.epoch, many.committed, tuple(asked), found)
        elif rng.random() < 0.7:
            key = rng.choice(keys[name])
            one = component.get(key, consistency=consistency)
            yield Recorded(
                name, one.epoch, one.committed, (key,), {} if one.record is None else {key: values(one.record)}
            )
        else:
            rows = component.scan(consistency=consistency)
            yield Recorded(name, rows.epoch, rows.committed, None, {key: values(one) for key, one in rows})


def wrong(records: list[Recorded], events: list[Any], positions: dict[int, int]) -> list[Recorded]:
    """The answers that are not the fold up to their checkpoint."""
    folds: dict[tuple[str, int], dict[Any, Any]] = {}
    found = []
    for one in records:
        place = one.component, positions[one.epoch]
        if place not in folds:
            folds[place] = fold(events[: place[1]], BY[one.component])
        expected = folds[place]
        if one.asked is not None:
            expected = {key: expected[key] for key in one.asked if key in expected}
        if one.found != expected:
            found.append(one)
    return found


def asked_while_killed(
    folder: Path, count: int, kills: int, seed: str, each: int = 1
) -> tuple[list[Recorded], list[Recorded]]:
    """(all answers, the wrong ones). At least `each` answers are recorded per checkpoint, on average."""
    rng = random.Random(seed)
    events = events_of(count)
    keys = {name: sorted({by(event) for event in events}, key=str) for name, by in BY.items()}
    records: list[Recorded] = []
    ended = threading.Event()
    (folder / ANSWERS).touch()

    def ask(served: Served, number: int) -> None:
        with served.connect() as state, (folder / ANSWERS).open("ab", buffering=0) as counted:
            wait_for(lambda: ended.is_set() or answers(state))
            asking = record(state, ["committed", "prepared"][number % 2], keys, f"{seed}/{number}")
            while not ended.is_set():
                records.append(next(asking))
                counted.write(b".")
                time.sleep(0.001)

    with serving(folder / "root", "sales", cache=folder / "cache") as served:
        threads = [threading.Thread(target=ask, args=(served, number), daemon=True) for number in range(2)]
        for thread in threads:
            thread.start()
        left = kills
        while True:
            process = start(folder, count, each)
            try:
                if left:
                    seen = newest(folder)
                    wait_for(lambda: process.poll() is not None or newest(folder) > seen + 3)  # noqa: B023
                    process.wait(rng.random() * 0.5)
                else:
                    process.wait(300)
            except subprocess.TimeoutExpired:
                process.kill()
                left -= 1
            finally:
                out = process.communicate()[0]
            if "done" in out:
                break
            assert process.returncode == -9, out
        last = newest(folder)
        wait_for(lambda: any(one.epoch == last for one in records) or not any(t.is_alive() for t in threads))
        ended.set()
        for thread in threads:
            thread.join()
    store = open_store(folder / "root", "sales")
    positions = {n: sum(store.manifest(n).positions.of("sales").values()) for n in store.completed()}
    assert positions[last] == count and len(records) > 100
    return records, wrong(records, events, positions)


def start(folder: Path, count: int, each: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, str(TESTS / "query" / "killed_job.py"), str(folder), str(count), str(each)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def newest(folder: Path) -> int:
    found = [
        int(path.stem) for path in (folder / "root" / "sales" / "checkpoints").glob("*.json") if path.stem.isdigit()
    ]
    return max(found, default=0)


def answers(state: query.State) -> bool:
    try:
        return set(BY) <= set(state.components())
    except JobFailed:
        return False


@pytest.mark.parametrize(
    ("count", "kills", "each"),
    [(250, 1, 4), pytest.param(1_500, 6, 40, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_every_answer_is_the_fold_up_to_its_checkpoint(tmp_path: Path, count: int, kills: int, each: int) -> None:
    """In the slow tier thousands of answers, from a hundred checkpoints."""
    records, bad = asked_while_killed(tmp_path, count, kills, f"{SEED}", each)
    assert not bad, f"STREAMWORK_KILL_SEED={SEED}: {bad[:3]}"
    assert len(records) >= count // 10 * each and len({one.epoch for one in records}) > count // 20


@pytest.mark.slow
def test_a_server_that_mixes_two_epochs_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: of instance 0, the state of the checkpoint before."""
    right = ComponentState.advanced

    def mixed(self: ComponentState, files: Any, chains: Any, epoch: int) -> ComponentState:
        older = self.chains.get("0")
        return right(self, files, chains if older is None else {**chains, "0": older}, epoch)

    monkeypatch.setattr(ComponentState, "advanced", mixed)
    assert asked_while_killed(tmp_path, 400, 1, f"{SEED}")[1]
