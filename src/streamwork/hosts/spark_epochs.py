"""The microbatch host: one Spark job per epoch, with exactly one action.

    spark.range(n, numPartitions=n).mapInArrow(first stage) -> exchange -> mapInArrow(next stage) -> ... -> collect

Whatever the graph, its chains stand in a line of stages (`Layout.stages`), and an exchange lies between two neighbours; so no
chain is computed twice, as it would be if two branches of a plan began with it. Reports travel with the events, through all
stages behind, to the one `collect`. So those that arrive are of the attempts whose rows were consumed; where Spark has run a
task again in between, `Report.consumed` tells.

Rows of sources that are in Spark's JVM join what comes into the stage of their chain (`hosts.spark_input`).

The action runs in a thread of its own from `submit` on, so the driver can let the sinks commit meanwhile.

The outputs are already staged by the tasks when the action returns. Adaptive execution is off, so that every instance runs,
also on empty input, and partition = instance, but for the first stage (`hosts.spark_affinity`).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from streamwork.components import Source, StatefulSource
from streamwork.components.operator import AnyOperator
from streamwork.connectors.address import SecretsFile
from streamwork.delivery.counts import Counts
from streamwork.engine import Abandoned, Assignment, EndKnown, Report, Reports
from streamwork.epoch.host import Host
from streamwork.errors import JobFailed, StreamworkError
from streamwork.hosts.master import is_remote
from streamwork.hosts.probe import cannot_run, unshared
from streamwork.hosts.spark_affinity import affinity_folder
from streamwork.hosts.spark_cancel import SparkCancel
from streamwork.hosts.spark_input import stage_input
from streamwork.hosts.spark_rows import ROW_SCHEMA, places
from streamwork.hosts.spark_tables import SparkTables
from streamwork.hosts.spark_task import NOT_MINE, REPORT_SCHEMA, Task, farewell, pass_through, task
from streamwork.job import Graph, Layout
from streamwork.world import Clock, RealClock

ROWS_PER_BATCH = 16_384
BYTES_PER_BATCH = 8_000_000
"""So much is handed to a Python worker at a time, whichever is less: rows of a source are small, a parcel may hold megabytes."""
KEEP_WARM_SECONDS = 25.0
"""Spark ends Python workers, and with them the state that they hold, when none of them was used for a minute."""


class _Action:
    """One epoch's Spark job, under way in the thread."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.rows: Future[Sequence[Any]]
        self.expired: Callable[[], bool] = lambda: False
        self.cancelled = False  # because its time had expired


class SparkEpochs(Host):
    """Computes each epoch on a Spark session of its own."""

    name = "microbatch"
    overlaps = True
    ends_known = EndKnown.BY_PLAN

    def __init__(self, spark: Any, clock: Clock | None = None) -> None:
        self._session = spark.newSession()
        self._remote = is_remote(spark.sparkContext.master)
        self._clock = clock or RealClock()
        self._used = self._clock.monotonic()  # when the Python workers last had something to do
        self._session.conf.set("spark.sql.adaptive.enabled", "false")
        self._session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_BATCH))
        self._session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(BYTES_PER_BATCH))
        # An attempt names itself in what it sends, so to Spark it is never the same output again, and Spark would give the job
        # up wherever a stage is run again. `Report.consumed` tells the driver exactly what has happened.
        self._session.conf.set("spark.sql.shuffle.orderIndependentChecksum.enabled", "false")
        self._session.conf.set("spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch", "false")
        self._shipped: tuple[Layout, str, Any] | None = None
        self._secrets: SecretsFile | None = None
        self._tables = SparkTables(self._session)
        self._thread = ThreadPoolExecutor(1, "streamwork-action")
        self._wasted: list[Counts] = []
        self._actions: deque[_Action] = deque()  # that are under way; the thread does one after the other

    def open(self, graph: Graph) -> None:
        """To be called before anything is planned: finds the sources whose rows are in Spark."""
        self._tables.open(graph)

    def submit(self, layout: Layout, works: Sequence[Assignment]) -> None:
        from pyspark.util import (
            inheritable_thread_target,  # what the caller has set for its jobs holds for this one, too
        )

        action = _Action(works[0].epoch)
        action.rows = self._thread.submit(
            inheritable_thread_target(self._session)(self._compute), action, layout, works
        )
        self._actions.append(action)

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        """What the epoch's one Spark job has brought. It is cancelled when its time has expired."""
        action = self._actions[0]
        assert action.epoch == epoch, "epochs are collected in the order in which they were submitted"
        action.expired = expired
        try:
            rows = action.rows.result()
        except StreamworkError as error:
            self.abandon()
            if action.cancelled:
                raise Abandoned from error
            raise
        self._actions.popleft()
        answers = [Reports.from_json(row[0]) for row in rows]
        for answer in answers:
            if answer.failure is not None:
                self._wasted = _counted(answers)
                self.abandon()
                raise answer.failure.to_error()
        return [report for answer in answers for report in answer.reports]

    def wasted(self) -> Sequence[Counts]:
        found, self._wasted = self._wasted, []
        return found

    def _compute(self, action: _Action, layout: Layout, works: Sequence[Assignment]) -> Sequence[Any]:
        context = self._session.sparkContext
        context.setJobDescription(f"{layout.graph.job}: checkpoint {action.epoch}")
        choice = len(places(layout, 0)) > 1  # which instance of the first stage a task computes
        with (
            SparkCancel(context, lambda: action.expired()) as cancel,
            affinity_folder(works) if choice else contextlib.nullcontext() as folder,
        ):
            try:
                return self._action(
                    f"compute epoch {action.epoch}", lambda: self._line_of_stages(layout, works, folder)
                )
            finally:
                action.cancelled = cancel.cancelled

    def abandon(self) -> None:
        """End what is under way. Nothing else to do: workers find states by what they are."""
        for action in self._actions:
            action.expired = lambda: True
        while self._actions:
            with contextlib.suppress(Exception):  # it counts for nothing, however it ended
                self._actions.popleft().rows.result()

    def keep_warm(self) -> None:
        """To be called now and then while there is nothing to compute: lets the Python workers live, and what they remember.

        It costs a clock's look; every `KEEP_WARM_SECONDS` a Spark job that does nothing, on every core.
        """
        if self._actions or self._clock.monotonic() < self._used + KEEP_WARM_SECONDS:
            return
        self._on_every_core("keep its Python workers", pass_through)

    def _on_every_core(self, what: str, run: Task) -> None:
        tasks = self._session.sparkContext.defaultParallelism
        self._session.sparkContext.setJobDescription(what)
        frame = self._session.range(tasks, numPartitions=tasks)
        self._action(what, lambda: frame.mapInArrow(run, "id long"))

    def _action(self, what: str, frame: Callable[[], Any]) -> Sequence[Any]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            rows: Sequence[Any] = frame().collect()
            return rows
        except (Py4JJavaError, PySparkException) as error:
            raise _spark_failed(what, error, self._remote) from error
        finally:
            self._used = self._clock.monotonic()

    def close(self) -> None:
        self.abandon()
        self._thread.shutdown()
        if self._shipped is not None and _has_closers(self._shipped[0].graph):
            with contextlib.suppress(StreamworkError):  # Spark may be gone; so are the instances then
                self._on_every_core("close what its operators have open", farewell)
        self._unship()

    def _unship(self) -> None:
        if self._shipped is not None:
            self._shipped[2].destroy()
            self._shipped = None
        if self._secrets is not None:
            self._secrets.remove()
            self._secrets = None

    def _line_of_stages(self, layout: Layout, works: Sequence[Assignment], folder: str | None) -> Any:
        """The data frame whose rows are the reports of all instances."""
        token, broadcast = self._ship(layout, Path(works[0].folder))
        by_place = {(work.chain, work.instance): work for work in works}
        last, frame = len(layout.stages) - 1, None
        for stage in range(last + 1):
            mine = [by_place[place] for place in places(layout, stage)]
            native, slices = self._tables.slices(layout, mine)
            # Where rows come into a stage, each partition has those of its instance.
            given = folder if frame is None and not slices else None
            frame = stage_input(self._session, frame, len(mine), slices)
            run = task(lambda: broadcast.value, token, msgspec.json.encode(mine), stage, self._remote, native, given)
            frame = frame.mapInArrow(run, REPORT_SCHEMA if stage == last else ROW_SCHEMA)
        return frame

    def _ship(self, layout: Layout, folder: Path) -> tuple[str, Any]:
        """Send the layout to the workers, once. Its token names these very objects, not their look. `folder` is the job's."""
        if self._shipped is None or self._shipped[0] is not layout:
            from pyspark import cloudpickle

            self._unship()
            self._secrets = SecretsFile(folder / "secrets")
            try:
                with self._secrets.collecting():
                    packed = cloudpickle.dumps(_for_workers(layout))
            except Exception as error:
                raise JobFailed(
                    "SW-OPERATOR-COPY",
                    f"the job cannot be sent to Spark's workers: {type(error).__name__}: {error}",
                    "open connections and the like in setup_instance of the operator that holds them, not in its constructor",
                    retryable=False,
                ) from error
            self._secrets.write()
            token = hashlib.sha256(packed).hexdigest()
            self._shipped = (layout, token, self._session.sparkContext.broadcast(packed))
        return self._shipped[1], self._shipped[2]


def _has_closers(graph: Graph) -> bool:
    """Has somebody written a `close` that the workers must call?"""
    bases = (AnyOperator, Source, StatefulSource)
    return any(
        type(node.component).close is not base.close
        for node in graph.nodes
        for base in bases
        if isinstance(node.component, base)
    )


def _counted(answers: Sequence[Reports]) -> list[Counts]:
    """What attempts have counted whose epoch comes to nothing, because one of them failed."""
    found = [Counts.of(r.component, r.instance, r.counters) for answer in answers for r in answer.reports]
    return found + [one for answer in answers for one in answer.counts]


def _for_workers(layout: Layout) -> Layout:
    """A sink that stays on the driver, with its connections, is not sent."""
    graph = layout.graph
    nodes = tuple(n if graph.travels(n) else replace(n, component=None) for n in graph.nodes)
    return Layout(replace(graph, nodes=nodes), layout.groups, layout.edges)


def _spark_failed(what: str, error: Exception, remote: bool) -> StreamworkError:
    text = str(error)
    if (found := NOT_MINE.search(text)) is not None:
        return unshared(found["host"], found["root"], "it does not see this driver's fence")
    lines = [line for line in text.splitlines() if line.strip()]
    told = next((line.strip() for line in reversed(lines) if "Error" in line and not line.startswith("\tat")), "")
    if remote and "ModuleNotFoundError" in text:
        return cannot_run(next(line.strip() for line in lines if "ModuleNotFoundError" in line))
    first = lines[0] if lines else type(error).__name__
    return JobFailed(
        "SW-SPARK-FAILED",
        f"Spark could not {what}: {first}" + (f" ({told})" if told and told != first else ""),
        "look at spark.log in the job's folder, or run again with --spark-log: the last checkpoint is good",
    )
