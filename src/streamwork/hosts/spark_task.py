"""The part of `spark_epochs` that runs inside Spark's Python workers.

A worker process outlives tasks, so what is kept here (the unpacked layout, set-up operators, state) is there for the
next epoch.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa

from streamwork.engine import Parcel, Work, Worker
from streamwork.hosts.spark_rows import Rows, parcels
from streamwork.job import Layout
from streamwork.world import RealDisk

_worker = Worker(RealDisk())
_layouts: dict[str, Layout] = {}

REPORT_SCHEMA = "reports string"
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def task(load_layout: Callable[[], bytes], token: str, works: bytes, stage: int) -> Task:
    """The function for `mapInArrow`: the attempts at one epoch by the instances of one stage.

    `works` are those of the stage, in the order of its partitions. The rows of the last stage are the reports of all.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        partition = TaskContext.get().partitionId()
        if token not in _layouts:
            _layouts.clear()
            _layouts[token] = pickle.loads(load_layout())
        layout = _layouts[token]
        work = msgspec.json.decode(works, type=list[Work])[partition]
        sent = _computed(layout, token, work, stage, batches)
        if stage + 1 < len(layout.stages):
            yield from Rows(layout, stage).batches(sent)
        else:
            answers = [bytes(parcel.content).decode() for parcel in sent]
            yield pa.record_batch({"reports": pa.array(answers, pa.string())})

    return run


def _computed(
    layout: Layout, token: str, work: Work, stage: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[Parcel]:
    """What one instance sends, and what goes past it."""
    place = (work.chain, work.instance)
    attempt = _worker.begin(layout, token, work)
    try:
        if layout.chains[work.chain].is_source:
            yield from attempt.read()
        for parcel in parcels(batches) if stage else _nothing(batches):
            if parcel.head.to == place:
                yield from attempt.take(parcel)
            else:
                yield parcel
        yield from attempt.finish()
    finally:
        attempt.discard()


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[Parcel]:
    """The rows before the first stage only make Spark run every instance."""
    for _ in batches:
        pass
    return iter(())
