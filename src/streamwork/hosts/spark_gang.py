"""The gang of live mode on Spark: one barrier stage whose Python tasks run until the gang ends.

    parallelize(tasks).barrier().mapPartitions(run a LiveTask)

Spark starts all tasks of a barrier stage at the same time, or none. It does not retry a failed one: the driver starts another
gang.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from streamwork.engine import Assignment
from streamwork.engine.live_task import LiveTask, task_count
from streamwork.errors import Refused
from streamwork.hosts.master import is_remote, local_cores
from streamwork.hosts.shipped_layout import ShippedLayout
from streamwork.hosts.spark_cancel import SparkCancel
from streamwork.hosts.spark_epochs import spark_failed
from streamwork.hosts.spark_task import check_folder
from streamwork.job import Graph, Layout
from streamwork.job.params import unpack
from streamwork.world import RealClock, RealDisk
from streamwork.world.pauses import keep_loaded, short_pauses


class SparkLauncher:
    """Launches gangs on a Spark session, one after the other."""

    def __init__(self, spark: Any) -> None:
        self._session = spark
        self._context = spark.sparkContext
        self._remote = is_remote(self._context.master)
        self._shipped = ShippedLayout(self._context)
        self._thread = ThreadPoolExecutor(1, "streamwork-gang")
        self._cancelled = False

    def check(self, graph: Graph, tasks: int) -> None:
        for node in graph.planned:
            if node.component.native() is not None:
                raise Refused(
                    "SW-LIVE-SOURCE",
                    f"source {node.id!r} is a DataFrame, which live mode cannot read: its rows come with Spark jobs",
                    "use --mode microbatch, or read the same input with a source of Streamwork",
                )
        cores = local_cores(self._context.master)
        if cores is not None and cores < tasks:
            raise Refused(
                "SW-LIVE-SLOTS",
                f"live mode runs {tasks} tasks at the same time, and Spark on {self._context.master} has {cores} slots",
                f"use --master local[{tasks + 2}], or a lower parallelism",
            )

    def launch(self, layout: Layout, works: Sequence[Assignment], folder: Path) -> Future[None]:
        from pyspark.util import inheritable_thread_target

        self._cancelled = False
        _, broadcast = self._shipped.ship(layout, Path(works[0].folder))
        run = gang_task(lambda: broadcast.value, msgspec.json.encode(works), str(folder), self._remote)
        self._context.setJobDescription(f"{layout.graph.job}: live")
        return self._thread.submit(inheritable_thread_target(self._session)(self._run), task_count(layout), run)

    def warm(self, layout: Layout, works: Sequence[Assignment]) -> None:
        """A gang whose tasks load the layout and leave."""
        from pyspark.util import inheritable_thread_target

        self._cancelled = False
        _, broadcast = self._shipped.ship(layout, Path(works[0].folder))
        run = warm_task(lambda: broadcast.value)
        self._thread.submit(inheritable_thread_target(self._session)(self._run), task_count(layout), run).result()

    def _run(self, tasks: int, run: Callable[[Iterable[Any]], Iterator[Any]]) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        with SparkCancel(self._context, lambda: self._cancelled):
            try:
                self._context.parallelize(range(tasks), tasks).barrier().mapPartitions(run).collect()
            except (Py4JJavaError, PySparkException) as error:
                raise spark_failed("run the tasks of live mode", error, self._remote) from error

    def cancel(self) -> None:
        self._cancelled = True

    def close(self) -> None:
        self._cancelled = True
        self._thread.shutdown()
        self._shipped.unship()


def gang_task(
    load_layout: Callable[[], bytes], works: bytes, folder: str, remote: bool
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function for `mapPartitions`: one task of a gang."""

    def run(rows: Iterable[Any]) -> Iterator[Any]:
        # This function is pickled by value, with a copy of every global that it names. The functions that it calls are imported.
        return _run(load_layout, works, folder, remote)

    return run


def warm_task(load_layout: Callable[[], bytes]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def run(rows: Iterable[Any]) -> Iterator[Any]:
        return _warm(load_layout)  # imported, as above

    return run


def _warm(load_layout: Callable[[], bytes]) -> Iterator[Any]:
    unpack(load_layout())
    return iter(())


def _run(load_layout: Callable[[], bytes], works: bytes, folder: str, remote: bool) -> Iterator[Any]:
    from pyspark import TaskContext

    packed = load_layout()
    layout: Layout = unpack(packed)
    assignments = msgspec.json.decode(works, type=list[Assignment])
    if remote:
        check_folder(assignments[0])
    parent = os.getppid()
    task = LiveTask(
        layout,
        TaskContext.get().partitionId(),
        assignments,
        RealDisk(),
        RealClock(),
        Path(folder),
        lambda: os.getppid() == parent,
        packed,
        keep_loaded,
    )
    with short_pauses():
        task.run()
    return iter(())
