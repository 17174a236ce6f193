"""Bytewax, one worker, no recovery: count and total of each card, one output for each event.

python keyed_count.py EVENTS.parquet COUNTS.parquet   ->   seconds and CPU seconds of the flow, as JSON
"""

import json
import sys
import time

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

PIECE = 10_000
last = {}


class Rows(StatelessSourcePartition):
    def __init__(self, path):
        self._batches = iter(pq.read_table(path).to_batches(max_chunksize=PIECE))

    def next_batch(self):
        batch = next(self._batches)  # StopIteration is the end
        return list(zip(batch["card"].to_pylist(), batch["amount"].to_pylist(), strict=True))


class Source(DynamicSource):
    def __init__(self, path):
        self._path = path

    def build(self, step_id, worker_index, worker_count):
        return Rows(self._path)


class Nowhere(StatelessSinkPartition):
    """Discards its input, but keeps the last output of each card, so that it can be checked."""

    def write_batch(self, items):
        last.update(items)


class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Nowhere()


def count(state, amount):
    n, total = (0, 0.0) if state is None else state
    state = (n + 1, total + amount)
    return state, state


flow = Dataflow("keyed_count")
uses = op.input("uses", flow, Source(sys.argv[1]))
op.output("out", op.stateful_map("count", uses, count), Sink())

pq.read_table(sys.argv[1])  # so that the file is in the system's memory, as it is for others
began, cpu = time.perf_counter(), time.process_time()
run_main(flow)
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
columns = {"card": list(last), "count": [n for n, _ in last.values()], "total": [t for _, t in last.values()]}
pq.write_table(pa.table(columns), sys.argv[2])
print(json.dumps({"seconds": seconds, "cpu": cpu}))
