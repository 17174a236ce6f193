"""Count and sum of prices per user and window. At the end of its input Bytewax closes all windows.

python windows.py VIEWS.parquet RESULTS.parquet KIND   ->   seconds and CPU seconds of the flow, as JSON
"""

import sys
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
from bytewax.dataflow import Dataflow
from measured_flow import Sink, Source, measured

ZERO = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
GAP = 30 * SECOND
WINDOWS = {
    "fixed": win.TumblingWindower(length=10 * SECOND, align_to=ZERO),
    "sliding": win.SlidingWindower(length=10 * SECOND, offset=5 * SECOND, align_to=ZERO),
    "session": win.SessionWindower(gap=GAP),
}
kind = sys.argv[3]
sums, closed = [], []


def made(batch):
    values = zip(batch["at"].to_pylist(), batch["price"].to_pylist(), strict=True)
    return list(zip(batch["user"].to_pylist(), values, strict=True))


def add(state, value):
    return state[0] + 1, state[1] + value[1]


def merge(one, other):
    return one[0] + other[0], one[1] + other[1]


def output():
    bounds = {(user, number): meta for user, (number, meta) in closed}
    rows = [(user, bounds[user, number], state) for user, (number, state) in sums]
    after = GAP if kind == "session" else timedelta(0)  # Bytewax closes a session at its last event
    columns = {
        "user": [user for user, _, _ in rows],
        "start": [meta.open_time for _, meta, _ in rows],
        "end": [meta.close_time + after for _, meta, _ in rows],
        "views": [state[0] for _, _, state in rows],
        "spent": [state[1] for _, _, state in rows],
    }
    return pa.table(columns), sys.argv[2]


clock = win.EventClock(
    ts_getter=lambda value: value[0],
    wait_for_system_duration=5 * SECOND,
    now_getter=lambda: ZERO,  # time advances by events alone
    to_system_utc=lambda at: None,
)
flow = Dataflow("windows")
views = op.input("views", flow, Source(sys.argv[1], made))
out = win.fold_window("sums", views, clock, WINDOWS[kind], lambda: (0, 0.0), add, merge, ordered=False)
op.output("sums-out", out.down, Sink(sums.extend))
op.output("closed-out", out.meta, Sink(closed.extend))
measured(flow, output)
