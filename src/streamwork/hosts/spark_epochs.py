"""The microbatch host: one Spark job per epoch, with exactly one action.

    spark.range(n, numPartitions=n).mapInArrow(chain) -> collect the report rows

The outputs are already staged by the tasks when the action returns. Adaptive execution is off, so that every instance runs,
also on empty input, and partition = instance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from streamwork.engine import Report, Reports, Work
from streamwork.errors import JobFailed
from streamwork.hosts.spark_task import REPORT_SCHEMA, task
from streamwork.job import Graph, Layout


class SparkEpochs:
    """Computes each epoch on a Spark session of its own."""

    name = "microbatch"

    def __init__(self, spark: Any) -> None:
        self._session = spark.newSession()
        self._session.conf.set("spark.sql.adaptive.enabled", "false")
        self._shipped: tuple[Graph, str, Any] | None = None

    def submit(self, layout: Layout, works: Sequence[Work]) -> None:
        layout.check_one_chain("Spark")
        self._submitted = (layout.graph, works)

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        """The epoch's one Spark job. It is not interrupted when its time has expired."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        graph, works = self._submitted
        token, broadcast = self._ship(graph)
        count = len(works)
        self._session.sparkContext.setJobDescription(f"{graph.job}: checkpoint {epoch}")
        run = task(lambda: broadcast.value, token, msgspec.json.encode(works))
        try:
            rows = self._session.range(count, numPartitions=count).mapInArrow(run, REPORT_SCHEMA).collect()
        except (Py4JJavaError, PySparkException) as error:
            raise _spark_failed(epoch, error) from error
        answers = [Reports.from_json(row[0]) for row in rows]
        for answer in answers:
            if answer.failure is not None:
                raise answer.failure.to_error()
        return [report for answer in answers for report in answer.reports]

    def close(self) -> None:
        if self._shipped is not None:
            self._shipped[2].destroy()
            self._shipped = None

    def _ship(self, graph: Graph) -> tuple[str, Any]:
        """Send the graph to the workers, once. Its token names these very objects, not their look."""
        if self._shipped is None or self._shipped[0] is not graph:
            from pyspark import cloudpickle

            try:
                packed = cloudpickle.dumps(_for_workers(graph))
            except Exception as error:
                raise JobFailed(
                    "SW-OPERATOR-COPY",
                    f"the job cannot be sent to Spark's workers: {type(error).__name__}: {error}",
                    "open connections and the like in setup_instance of the operator that holds them, not in its constructor",
                ) from error
            token = hashlib.sha256(packed).hexdigest()
            self._shipped = (graph, token, self._session.sparkContext.broadcast(packed))
        return self._shipped[1], self._shipped[2]


def _for_workers(graph: Graph) -> Graph:
    """Workers only stage what sinks will get; a sink, with its connections, stays on the driver."""
    return replace(graph, nodes=tuple(replace(n, component=None) if n in graph.sinks else n for n in graph.nodes))


def _spark_failed(epoch: int, error: Exception) -> JobFailed:
    lines = [line for line in str(error).splitlines() if line.strip()]
    told = next((line.strip() for line in reversed(lines) if "Error" in line and not line.startswith("\tat")), "")
    first = lines[0] if lines else type(error).__name__
    return JobFailed(
        "SW-SPARK-FAILED",
        f"Spark could not compute epoch {epoch}: {first}" + (f" ({told})" if told and told != first else ""),
        "look at spark.log in the job's folder, or run again with --spark-log: the last checkpoint is good",
    )
