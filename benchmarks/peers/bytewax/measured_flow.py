"""Shared by the flows: a source of Parquet rows, a sink that remembers, and the time that a flow takes. One worker, no recovery."""

import json
import time

import pyarrow.parquet as pq
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

PIECE = 10_000


class _Rows(StatelessSourcePartition):
    def __init__(self, path, made):
        self._batches = iter(pq.read_table(path).to_batches(max_chunksize=PIECE))
        self._made = made

    def next_batch(self):
        return self._made(next(self._batches))  # StopIteration is the end


class Source(DynamicSource):
    """The rows of a file. `made` turns a batch of them into items."""

    def __init__(self, path, made):
        pq.read_table(path)  # so that the file is in the system's memory, as it is for others
        self._path, self._made = path, made

    def build(self, step_id, worker_index, worker_count):
        return _Rows(self._path, self._made)


class _Taking(StatelessSinkPartition):
    def __init__(self, take):
        self._take = take

    def write_batch(self, items):
        self._take(items)


class Sink(DynamicSink):
    """Calls `take` with lists of outputs."""

    def __init__(self, take):
        self._take = take

    def build(self, step_id, worker_index, worker_count):
        return _Taking(self._take)


def measured(flow, output):
    """Run the flow, write the table that `output` returns then, and print seconds and CPU seconds of the flow as JSON."""
    began, cpu = time.perf_counter(), time.process_time()
    run_main(flow)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    table, path = output()
    pq.write_table(table, path)
    print(json.dumps({"seconds": seconds, "cpu": cpu}))
