"""Affinity: an instance stays in the process that has its state, and a partition keeps its instance when it is run again."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample import Payment, Seen, Sums, expected_journal, payments, run_job
from streamwork import EventLog, Job, KeyedOperator, LogSource, SqliteSink
from streamwork.engine import Assignment
from streamwork.hosts import spark_epochs
from streamwork.hosts.spark_affinity import affinity_folder, bind_instance


def works(folder: Path, count: int, fence: int = 3) -> list[Assignment]:
    return [
        Assignment(instance, "u", str(folder), groups=256, epoch=7, fence=fence, extents={}, states={})
        for instance in range(count)
    ]


@given(st.integers(1, 6), st.randoms(use_true_random=False))
def test_partitions_and_instances_belong_together_one_to_one(count: int, rng: random.Random) -> None:
    """Tasks begin in any order, some several times, in processes that have read any states."""
    with tempfile.TemporaryDirectory() as name, affinity_folder(works(Path(name), count)) as folder:
        mine, taken = works(Path(name), count), defaultdict[int, set[int]](set)
        tasks = list(range(count)) + [rng.randrange(count) for _ in range(rng.randint(0, 6))]
        rng.shuffle(tasks)
        for partition in tasks:
            unread = {instance: rng.choice((0, 5, 100)) for instance in range(count)}
            work = bind_instance(folder, partition, mine, lambda work, unread=unread: unread[work.instance])  # type: ignore[misc]
            taken[partition].add(work.instance)
        assert all(len(instances) == 1 for instances in taken.values())
        assert len(set.union(*taken.values())) == count


def test_a_task_takes_what_it_need_not_read_else_its_own(tmp_path: Path) -> None:
    mine = works(tmp_path, 3)
    with affinity_folder(mine) as folder:
        assert bind_instance(folder, 0, mine, lambda work: 0 if work.instance == 2 else 9).instance == 2
        assert bind_instance(folder, 1, mine, lambda work: 9).instance == 1
        assert bind_instance(folder, 2, mine, lambda work: 0 if work.instance == 2 else 9).instance == 0, "2 is taken"
        with pytest.raises(RuntimeError, match="no instance is left"):
            bind_instance(folder, 3, mine, lambda work: 0)


def test_the_folder_goes_with_its_epoch_and_older_ones_with_the_next_fence(tmp_path: Path) -> None:
    (tmp_path / "exchange" / "2" / "000000000006-abcd").mkdir(parents=True)
    with affinity_folder(works(tmp_path, 2)) as folder:
        assert Path(folder).parent == tmp_path / "exchange" / "3"
    assert [path.name for path in (tmp_path / "exchange").rglob("*")] == ["3"]


class Wandering(KeyedOperator[Payment, Sums, Seen]):
    """Sums; tells in which process, and takes a while, so that now one instance is ready first and now another."""

    def __init__(self, folder: str, deadly: bool = False) -> None:
        self.folder = folder
        self.deadly = deadly

    def setup_instance(self, instance: int) -> None:
        self.instance = instance

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        if event.amount % 5 == 0:
            with (Path(self.folder) / f"seen-{self.instance}").open("a") as file:
                file.write(f"{os.getpid()}\n")
            if self.deadly and event.amount == 25:
                with contextlib.suppress(FileExistsError):  # each of these events kills once
                    os.close(os.open(f"{self.folder}/died-{event.card}-{state.number}", os.O_CREAT | os.O_EXCL))
                    os._exit(1)
            time.sleep(0.01 + random.random() / 50)
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, state.total))


def wander(folder: Path, deadly: bool = False) -> list[list[int]]:
    """Some epochs of a job with state in its first stage. Returns the processes of each instance, one by one."""
    folder.mkdir(exist_ok=True)
    events = payments(1_000, cards=20)
    with EventLog.create(folder / "log", Payment, key="card", partitions=2) as log:
        log.append(events)
        log.sync()
    job = Job("wandering", checkpoint_every=0, parallelism=2)
    source = job.source(LogSource(folder / "log", Payment, max_events=40), id="payments")
    sums = source.apply(Wandering(str(folder), deadly), key="card", id="sums")
    sums.sink(SqliteSink(folder / "out.db", "journal"), id="journal")
    run_job(job, folder / "root", "microbatch", restart=deadly)
    with closing(sqlite3.connect(folder / "out.db")) as db:
        journal = db.execute("SELECT card, number, total FROM journal").fetchall()
    assert Counter(journal) == Counter(expected_journal(events)), "the journal is wrong"
    assert not list((folder / "root" / "wandering" / "exchange").glob("*/*"))
    return [list(map(int, (folder / f"seen-{i}").read_text().split())) for i in range(2)]


def moves(processes: list[int]) -> int:
    return sum(before != after for before, after in pairwise(processes))


@pytest.mark.slow
@pytest.mark.spark
def test_an_instance_stays_in_the_process_that_has_its_state(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a run without affinity. Where a process has computed both instances of an epoch, they may part again."""

    @contextlib.contextmanager
    def none(works: Any) -> Iterator[None]:
        yield None

    def stays(attempt: int) -> bool:
        with_affinity = sum(map(moves, wander(tmp_path / f"with-{attempt}")))
        with monkeypatch.context() as patched:
            patched.setattr(spark_epochs, "affinity_folder", none)
            without = sum(map(moves, wander(tmp_path / f"without-{attempt}")))
        print(f"moves: {with_affinity} with affinity, {without} without")
        return with_affinity < without / 2

    assert any(map(stays, range(3))), "how busy the machine is decides, too: once in three times is enough"


@pytest.mark.slow
@pytest.mark.spark
def test_a_task_that_dies_is_run_again_for_its_instance(tmp_path: Path, spark: Any) -> None:
    assert max(len(set(processes)) for processes in wander(tmp_path, deadly=True)) > 2
    assert len(list(tmp_path.glob("died-*"))) == 20
