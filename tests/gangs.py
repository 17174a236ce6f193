"""A gang whose tasks are threads of the test process: the live host without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NoReturn

from streamwork.engine import Assignment
from streamwork.engine.live_task import LiveTask, task_count
from streamwork.hosts.gang import GangHost
from streamwork.job import Graph, Layout
from streamwork.job.params import pack, unpack
from streamwork.world import RealClock, RealDisk


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
        self.launched = 0

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
        running = [self._threads.submit(task.run) for task in made]
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
        """Nothing to do: a thread starts at once."""

    def cancel(self) -> None:
        self._wanted = False

    def close(self) -> None:
        if self._threads is not None:
            with contextlib.suppress(Exception):
                self._threads.shutdown()


def gang_host() -> GangHost:
    return GangHost(ThreadLauncher())
