"""The part of `spark_epochs` that runs inside Spark's Python workers.

A worker process outlives tasks, so what is kept here (the unpacked graph, set-up operators, state) is there for the
next epoch.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa

from streamwork.engine import Work, Worker
from streamwork.job import Graph
from streamwork.world import RealDisk

_worker = Worker(RealDisk())
_graphs: dict[str, Graph] = {}

REPORT_SCHEMA = "reports string"


def task(
    load_graph: Callable[[], bytes], token: str, works: bytes
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: one attempt at one epoch; its only row is the report."""

    def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for _ in rows:
            pass  # the rows only make Spark run this instance
        context = TaskContext.get()
        if token not in _graphs:
            _graphs.clear()
            _graphs[token] = pickle.loads(load_graph())
        work = msgspec.json.decode(works, type=list[Work])[context.partitionId()]
        reports = _worker.run(_graphs[token], token, work)
        yield pa.record_batch({"reports": [reports.to_json().decode()]})

    return run
