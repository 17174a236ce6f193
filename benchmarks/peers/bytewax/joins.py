"""Clicks and purchases of the same user, at most 30 seconds apart.

Bytewax joins the last values of a key, or within a window, but not within a bound; so the join is a `StatefulBatchLogic`. It
forgets a row when the user's latest time, less two bounds and the disorder, is beyond it.

python joins.py CLICKS.parquet PURCHASES.parquet PAIRS.parquet   ->   seconds and CPU seconds of the flow, as JSON
"""

import sys
from bisect import bisect_left, insort

import bytewax.operators as op
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from measured_flow import Sink, Source, measured

SECOND = 1_000_000
BOUND = 30 * SECOND
KEPT = 2 * BOUND + 5 * SECOND
pairs = []


def made(side, name):
    def items(batch):
        times = batch["at"].cast(pa.int64()).to_pylist()
        rows = zip((side,) * batch.num_rows, times, batch[name].to_pylist(), strict=True)
        return list(zip(batch["user"].to_pylist(), rows, strict=True))

    return items


class Join(StatefulBatchLogic):
    def __init__(self):
        self._kept = ([], [])  # clicks and purchases, ordered by time
        self._latest = 0

    def on_batch(self, values):
        found = []
        for side, at, number in values:
            other = self._kept[1 - side]
            place = bisect_left(other, (at - BOUND, -1))
            while place < len(other) and other[place][0] <= at + BOUND:
                found.append((other[place][1], number) if side else (number, other[place][1]))
                place += 1
            insort(self._kept[side], (at, number))
            self._latest = max(self._latest, at)
        for rows in self._kept:
            del rows[: bisect_left(rows, (self._latest - KEPT, -1))]
        return found, StatefulBatchLogic.RETAIN

    def snapshot(self):
        return None


def output():
    return pa.table({"click": [pair[0] for _, pair in pairs], "purchase": [pair[1] for _, pair in pairs]}), sys.argv[3]


flow = Dataflow("joins")
clicks = op.input("clicks", flow, Source(sys.argv[1], made(0, "click")))
purchases = op.input("purchases", flow, Source(sys.argv[2], made(1, "purchase")))
both = op.merge("both", clicks, purchases)
joined = op.stateful_batch("join", both, lambda state: Join())
op.output("out", joined, Sink(pairs.extend))
measured(flow, output)
