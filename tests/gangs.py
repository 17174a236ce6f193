"""A gang whose tasks are threads of the test process: the live host without Spark."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NoReturn

import pytest

from streamwork.engine import Assignment
from streamwork.engine.live_task import LiveTask, task_count
from streamwork.epoch import Driver, Store
from streamwork.errors import JobFailed
from streamwork.hosts.gang import GangHost
from streamwork.job import Graph, Job, Layout
from streamwork.job.params import pack, unpack
from streamwork.world import RealClock, RealDisk
from waiting import PATIENCE


class Killed(BaseException):
    """Ends a task as kill -9 would: nothing that handles errors sees it."""


_launched: list[ThreadLauncher] = []


def end_gangs() -> None:
    """End the gangs of a test that has failed, or was to fail, before it ended them itself."""
    while _launched:
        _launched.pop().cancel()


class ThreadLauncher:
    """`lose()` ends the tasks of the running gang as if their processes had been killed."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._wanted = True
        self._killed = False
        self.launched = self.warmed = 0

    def check(self, graph: Graph, tasks: int) -> None:
        """Any job can run here."""

    def launch(self, layout: Layout, works: Sequence[Assignment], folder: Path) -> Future[None]:
        from pyspark import cloudpickle

        tasks, packed = task_count(layout), pack(layout.graph.params, cloudpickle.dumps(layout))
        self.launched += 1
        _launched.append(self)
        self._wanted, self._killed = True, False
        self._threads = ThreadPoolExecutor(tasks + 1, "task")
        made = [
            LiveTask(unpack(packed), number, works, RealDisk(), RealClock(), folder, self._is_wanted, packed)
            for number in range(tasks)
        ]
        running = [self._threads.submit(_run, task) for task in made]
        self._ended = self._threads.submit(lambda: [one.result() for one in wait(running).done] and None)
        return self._ended

    def lose(self) -> None:
        """Returns when they have ended."""
        self._killed = True
        with contextlib.suppress(Killed):
            self._ended.result()

    def die(self) -> NoReturn:
        """In a task: it is killed, and the others with it, as Spark does with a barrier stage."""
        self._killed = True
        raise Killed("killed")

    def _is_wanted(self) -> bool:
        if self._killed:
            raise Killed("killed")
        return self._wanted

    def warm(self, layout: Layout, works: Sequence[Assignment]) -> None:
        """A thread starts at once."""
        self.warmed += 1

    def cancel(self) -> None:
        self._wanted = False

    def close(self) -> None:
        if self._threads is not None:
            with contextlib.suppress(Exception):
                self._threads.shutdown()


def _run(task: LiveTask) -> None:
    try:
        task.run()
    except Killed:  # its isolated components notice that a process is gone; here they are ended
        for executor in task._executors.values():
            executor.discard()
        raise


class GangRun:
    """A job that one driver after another runs with gangs of threads."""

    publishes = False

    def __init__(self, folder: Path, job: Job) -> None:
        self.job = job
        self.folder = folder
        self.launcher = ThreadLauncher()
        self.driver: Driver

    def start(self) -> Driver:
        self.host = GangHost(self.launcher, publishes=self.publishes)
        self.host.open(self.job.graph())
        self.driver = Driver(
            self.job.graph(),
            self.job.settings,
            Store(RealDisk(), self.folder / "root", self.job.name),
            self.host,
            RealClock(),
            lambda: "0123456789abcdef" * 2,
            take_over=True,
        )
        self.driver.start()
        return self.driver

    def checkpoint(self) -> None:
        self.driver.run_epoch()

    def stop(self) -> None:
        while self.driver.run_epoch(last=True) is not None:
            """Complete what is in flight."""
        self.end()

    def end(self) -> None:
        self.driver.close()
        self.host.close()

    def lose(self) -> None:
        """The gang is lost, and its driver ends."""
        self.launcher.lose()
        with pytest.raises(JobFailed) as failed:
            self.until(lambda: False, "the loss")
        assert failed.value.code == "SW-GANG-LOST"
        self.end()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Take checkpoints until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, what
            self.checkpoint()
            time.sleep(0.01)


def gang_host() -> GangHost:
    return GangHost(ThreadLauncher())
