"""Count and total of each card, one output for each event.

python keyed_count.py EVENTS.parquet COUNTS.parquet   ->   seconds and CPU seconds of the flow, as JSON
"""

import sys

import bytewax.operators as op
import pyarrow as pa
from bytewax.dataflow import Dataflow
from measured_flow import Sink, Source, measured

last = {}  # the last output of each card, to be checked


def count(state, amount):
    n, total = (0, 0.0) if state is None else state
    state = (n + 1, total + amount)
    return state, state


def made(batch):
    return list(zip(batch["card"].to_pylist(), batch["amount"].to_pylist(), strict=True))


def output():
    columns = {"card": list(last), "count": [n for n, _ in last.values()], "total": [t for _, t in last.values()]}
    return pa.table(columns), sys.argv[2]


flow = Dataflow("keyed_count")
uses = op.input("uses", flow, Source(sys.argv[1], made))
op.output("out", op.stateful_map("count", uses, count), Sink(last.update))
measured(flow, output)
