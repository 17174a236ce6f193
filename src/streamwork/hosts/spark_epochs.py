"""The microbatch host: one Spark job per epoch, with exactly one action.

    spark.range(n, numPartitions=n).mapInArrow(first stage) -> exchange -> mapInArrow(next stage) -> ... -> collect

The chains of a graph form a sequence of stages (`Layout.stages`) with an exchange between two neighbours, so no chain is
computed twice, as it would be if two branches of a Spark plan began with it. Reports travel with the events, through all later
stages, to the one `collect`. The reports that arrive are those of the attempts whose rows were consumed; `Report.consumed` shows
where Spark has run a task again in between.

Rows of sources in Spark's JVM join the input of the stage of their chain (`hosts.spark_input`).

The action runs in a thread of its own from `submit` on, so the sinks can commit the epoch before it meanwhile.

The outputs are already staged by the tasks when the action returns. Adaptive execution is off, so that every instance runs,
also on empty input, and partition = instance, but for the first stage (`hosts.spark_affinity`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from streamwork.components import Source, StatefulSource
from streamwork.components.operator import AnyOperator
from streamwork.delivery.counts import Counts
from streamwork.engine import Abandoned, Assignment, EndKnown, Report, Reports
from streamwork.epoch.host import Host
from streamwork.errors import JobFailed, StreamworkError
from streamwork.hosts.master import is_remote
from streamwork.hosts.probe import cannot_run, unshared
from streamwork.hosts.shipped_layout import ShippedLayout
from streamwork.hosts.spark_affinity import affinity_folder
from streamwork.hosts.spark_cancel import SparkCancel
from streamwork.hosts.spark_input import stage_input
from streamwork.hosts.spark_life import KEEP_WARM_SECONDS
from streamwork.hosts.spark_rows import ROW_SCHEMA, places
from streamwork.hosts.spark_tables import SparkTables
from streamwork.hosts.spark_task import NOT_MINE, REPORT_SCHEMA, Task, farewell, pass_through, task
from streamwork.job import Graph, Layout
from streamwork.world import Clock, RealClock

ROWS_PER_BATCH = 16_384
BYTES_PER_BATCH = 8_000_000
"""Maximum size of a batch for a Python worker, whichever is reached first: source rows are small, a parcel may hold megabytes."""


class _Action:
    """The Spark job of one epoch, in flight in the thread."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.rows: Future[Sequence[Any]]
        self.expired: Callable[[], bool] = lambda: False
        self.cancelled = False  # because its time had expired


class SparkEpochs(Host):
    """Computes each epoch on a Spark session of its own."""

    name = "microbatch"
    overlaps = True
    continuous = False
    ends_known = EndKnown.BY_PLAN
    sizes_slices = True

    def __init__(self, spark: Any, clock: Clock | None = None) -> None:
        self._session = spark.newSession()
        self._remote = is_remote(spark.sparkContext.master)
        self._clock = clock or RealClock()
        self._used = self._clock.monotonic()  # when the Python workers were last used
        self._session.conf.set("spark.sql.adaptive.enabled", "false")
        self._session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_BATCH))
        self._session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(BYTES_PER_BATCH))
        # An attempt names itself in its output, so the output of a repeated stage always differs, and Spark would fail the job.
        # `Report.consumed` shows the driver what was consumed.
        self._session.conf.set("spark.sql.shuffle.orderIndependentChecksum.enabled", "false")
        self._session.conf.set("spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch", "false")
        self._shipped = ShippedLayout(self._session.sparkContext)
        self._tables = SparkTables(self._session)
        self._thread = ThreadPoolExecutor(1, "streamwork-action")
        self._wasted: list[Counts] = []
        self._actions: deque[_Action] = deque()  # in flight; the thread runs one after the other
        self._ahead: _Action | None = None  # what `read_ahead` waits for

    def open(self, graph: Graph) -> None:
        """Bind the sources whose rows are in Spark."""
        self._tables.open(graph)

    def submit(self, layout: Layout, works: Sequence[Assignment]) -> None:
        from pyspark.util import (
            inheritable_thread_target,  # the job properties of the calling thread apply here, too
        )

        action = _Action(works[0].epoch)
        action.rows = self._thread.submit(
            inheritable_thread_target(self._session)(self._compute), action, layout, works
        )
        self._actions.append(action)

    def read_ahead(self, layout: Layout, works: Sequence[Assignment]) -> None:
        """Run the Spark job of an epoch whose tasks read their states and compute nothing. `abandon` cancels it."""
        from pyspark.util import inheritable_thread_target

        action = self._ahead = _Action(works[0].epoch)
        action.rows = self._thread.submit(
            inheritable_thread_target(self._session)(self._compute), action, layout, works, ahead=True
        )
        try:
            action.rows.result()
        except StreamworkError:
            if not action.cancelled:
                raise
        finally:
            self._ahead = None

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        """The reports of the epoch's one Spark job, which is cancelled when its time has expired."""
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

    def moved(self) -> bool:
        return True

    def wasted(self) -> Sequence[Counts]:
        found, self._wasted = self._wasted, []
        return found

    def _compute(
        self, action: _Action, layout: Layout, works: Sequence[Assignment], ahead: bool = False
    ) -> Sequence[Any]:
        context, what = self._session.sparkContext, "read checkpoint" if ahead else "compute epoch"
        context.setJobDescription(f"{layout.graph.job}: {'read ' if ahead else ''}checkpoint {action.epoch}")
        choice = len(places(layout, 0)) > 1  # a task of the first stage may compute one of several instances
        with (
            SparkCancel(context, lambda: action.expired()) as cancel,
            affinity_folder(works) if choice else contextlib.nullcontext() as folder,
        ):
            try:
                return self._action(
                    f"{what} {action.epoch}", lambda: self._line_of_stages(layout, works, folder, ahead)
                )
            finally:
                action.cancelled = cancel.cancelled

    def abandon(self) -> None:
        """Cancel what is in flight. Workers find cached states by the hash of their files, so nothing has to be dropped there."""
        for action in (*self._actions, *filter(None, [self._ahead])):
            action.expired = lambda: True
        while self._actions:
            with contextlib.suppress(Exception):  # its outcome does not count
                self._actions.popleft().rows.result()

    def keep_warm(self) -> None:
        """Run an empty Spark job on every core, every `KEEP_WARM_SECONDS`. Otherwise it reads the clock only."""
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
            raise spark_failed(what, error, self._remote) from error
        finally:
            self._used = self._clock.monotonic()

    def close(self) -> None:
        self.abandon()
        self._thread.shutdown()
        if self._shipped.layout is not None and _has_closers(self._shipped.layout.graph):
            with contextlib.suppress(StreamworkError):  # Spark may be gone, and the instances with it
                self._on_every_core("close what its operators have open", farewell)
        self._shipped.unship()

    def _line_of_stages(self, layout: Layout, works: Sequence[Assignment], folder: str | None, ahead: bool) -> Any:
        """The data frame whose rows are the reports of all instances. With `ahead` it has none."""
        token, broadcast = self._shipped.ship(layout, Path(works[0].folder))
        by_place = {(work.chain, work.instance): work for work in works}
        last, frame = len(layout.stages) - 1, None
        for stage in range(last + 1):
            mine = [by_place[place] for place in places(layout, stage)]
            native, slices = self._tables.slices(layout, mine)
            # Rows that enter a stage are already in the partition of their instance.
            given = folder if frame is None and not slices else None
            frame = stage_input(self._session, frame, len(mine), slices)
            encoded = msgspec.json.encode(mine)
            run = task(lambda: broadcast.value, token, encoded, stage, self._remote, native, given, ahead)
            frame = frame.mapInArrow(run, REPORT_SCHEMA if stage == last else ROW_SCHEMA)
        return frame


def _has_closers(graph: Graph) -> bool:
    """True if a component defines a `close` that the workers must call."""
    bases = (AnyOperator, Source, StatefulSource)
    return any(
        type(node.component).close is not base.close
        for node in graph.nodes
        for base in bases
        if isinstance(node.component, base)
    )


def _counted(answers: Sequence[Reports]) -> list[Counts]:
    """The counts of the attempts at an epoch in which one has failed."""
    found = [Counts.of(r.component, r.instance, r.counters) for answer in answers for r in answer.reports]
    return found + [one for answer in answers for one in answer.counts]


def spark_failed(what: str, error: Exception, remote: bool) -> StreamworkError:
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
        "read spark.log in the job's folder, or run again with --spark-log: the last checkpoint is good",
    )
