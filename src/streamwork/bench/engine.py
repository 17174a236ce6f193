"""``streamwork bench engine``: a chain with a typed keyed operator on one core, compared with a hand-written loop.

Both start from the same Arrow batches in memory, make a typed event of each row, update the record of its key, emit one typed
event, and make Arrow batches of the output:

    loop      what a user would write: columns to lists, events, `dict.get`, the update in place, no call per event and no
              checks; its output stays in memory, and its records are never saved
    chain     the engine as all hosts run it, one epoch of an `Instance` from `begin` to `finish`: the source's slices,
              `Chain.process`, the operator's `apply` and `emit`, tracking of changed keys, type checks of the output, output
              staged to a file, and the checkpoint: records of all changed keys as a Parquet file, hashes, fsync

The chain's time includes all of this; `checkpoint_s` is the part of `finish`. Rows and final states of both are compared in every
repeat; a difference is an error, and no speed is reported.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench.spread import spread
from streamwork.components import Event, KeyedCollector, KeyedOperator, Observer, OffsetSource, Record, Slice
from streamwork.components.columns import to_structs
from streamwork.engine import Assignment, Chain
from streamwork.engine.extent import Extent
from streamwork.engine.instance import Instance
from streamwork.engine.steps.staging import read_staged
from streamwork.job import Graph, Job, Stream
from streamwork.state import KeyedState
from streamwork.world import RealDisk

BATCH = 10_000
BATCHES = 100
CARDS = 10_000
REPEATS = 7  # odd, and more than five: neighbours on shared cores come and go
LARGE = 5_000.0  # four events out of five
GROUPS = 256


class Transaction(Event, frozen=True):
    id: str
    card: str
    merchant: int
    amount: float
    online: bool


class Spending(Record):
    count: int = 0
    total: float = 0.0


class Spent(Event, frozen=True):
    id: str
    card: str
    count: int
    total: float


class Spend(KeyedOperator[Transaction, Spending, Spent]):
    """Number and total of the payments of each card so far."""

    def apply(self, event: Transaction, state: Spending, collector: KeyedCollector) -> None:
        state.count += 1
        state.total += event.amount
        collector.emit(Spent(event.id, event.card, state.count, state.total))


def is_large(event: Transaction) -> bool:
    return event.amount >= LARGE


class Run(msgspec.Struct):
    """The result of one side for all batches."""

    outputs: list[pa.RecordBatch]
    records: dict[Any, Any]
    seconds: float
    cpu: float
    checkpoint: float = 0.0


Batches = list[pa.RecordBatch]
# Each case: its steps between source and sink, and whether the loop beside it leaves small transactions out.
CASES: dict[str, tuple[Callable[[Stream[Any]], Stream[Any]], bool]] = {
    "keyed": (lambda stream: stream.apply(Spend(), key="card", id="spend"), False),
    "keyed, on_error=drop": (lambda stream: stream.apply(Spend(), key="card", id="spend", on_error="drop"), False),
    "filter, keyed": (lambda stream: stream.filter(is_large).apply(Spend(), key="card", id="spend"), True),
}
MAIN_CASE = "keyed"


def run(folder: Path | None = None) -> dict[str, Any]:
    """Measure and return all figures. Raises AssertionError if an output is wrong."""
    batches = list(_batches())
    graphs = {name: _graph(batches, steps) for name, (steps, _) in CASES.items()}
    loops: dict[str, list[Run]] = {name: [] for name in CASES}
    chains: dict[str, list[Run]] = {name: [] for name in CASES}
    for repeat in range(-1, REPEATS):  # the first one warms up; interleaved, so that a noisy minute hits both
        for name, (_, only_large) in CASES.items():
            with tempfile.TemporaryDirectory(prefix="bench-engine-", dir=folder) as scratch:
                first = _loop(batches, only_large) if repeat % 2 else None
                chain = _chain(graphs[name], Path(scratch))
                loop = first or _loop(batches, only_large)
            _check(loop, chain)
            for side in (loop, chain):  # a later repeat must not find less memory than an earlier one
                side.outputs, side.records = [], {}
            if repeat >= 0:
                loops[name].append(loop)
                chains[name].append(chain)
    cases = {name: _numbers(loops[name], chains[name]) for name in CASES}
    main = cases[MAIN_CASE]
    return {
        "events_per_s": main["events_per_s"]["median"],
        "loop_events_per_s": main["loop_events_per_s"]["median"],
        "ratio_vs_loop": main["ratio_vs_loop"]["median"],
        "cpu_s_per_million": main["cpu_s_per_million"]["median"],
        "loop_cpu_s_per_million": main["loop_cpu_s_per_million"]["median"],
        "cases": cases,
        "settings": {
            "events_per_batch": BATCH,
            "batches": BATCHES,
            "columns": len(Transaction.__struct_fields__),
            "bytes_per_event": round(batches[0].nbytes / BATCH, 1),
            "distinct_keys": CARDS,
            "outputs_per_event": 1,
            "repeats": REPEATS,
        },
    }


# ---- the two sides ------------------------------------------------------------------------------------------------------


def _loop(batches: Batches, only_large: bool) -> Run:
    """The hand-written loop."""
    schema = pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("card", pa.string(), nullable=False),
            pa.field("count", pa.int64(), nullable=False),
            pa.field("total", pa.float64(), nullable=False),
        ]
    )
    records: dict[str, Spending] = {}
    outputs: Batches = []
    gc.collect()
    started, started_cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        events = list(map(Transaction, *(column.to_pylist() for column in batch.columns)))  # faster than without list
        if only_large:
            events = list(filter(is_large, events))
        spent: list[Spent] = []
        for event in events:
            record = records.get(event.card)
            if record is None:
                record = records[event.card] = Spending()
            record.count += 1
            record.total += event.amount
            spent.append(Spent(event.id, event.card, record.count, record.total))
        columns = [
            pa.array([one.id for one in spent], pa.string()),
            pa.array([one.card for one in spent], pa.string()),
            pa.array([one.count for one in spent], pa.int64()),
            pa.array([one.total for one in spent], pa.float64()),
        ]
        outputs.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return Run(outputs, records, time.perf_counter() - started, time.process_time() - started_cpu)


def _chain(graph: Graph, folder: Path) -> Run:
    """The engine: one epoch of one instance."""
    disk, end = RealDisk(), BATCH * BATCHES
    work = Assignment(
        0, "bench", str(folder), GROUPS, epoch=1, fence=1, extents={"arrow": {"0": Extent(0, end)}}, states={}
    )
    instance = Instance(Chain(graph), disk, work)
    gc.collect()
    started, started_cpu = time.perf_counter(), time.process_time()
    instance.begin(work, "bench")
    for _ in instance.reading.read(work):
        pass
    read = time.perf_counter()
    reports = instance.finish()  # some rows may only be written here, so it counts
    seconds, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    checkpoint = time.perf_counter() - read
    staged = next(report.staged for report in reports if report.staged is not None)
    state = instance.states["spend"]
    assert isinstance(state, KeyedState)
    return Run(list(read_staged(disk, folder, staged)), state.records, seconds, cpu, checkpoint)


class _ArrowSource(OffsetSource[Transaction]):
    """A source of batches in memory."""

    event = Transaction
    max_events = 1_000_000_000
    bounded = True

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def partitions(self) -> list[str]:
        return ["0"]

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        return dict.fromkeys(starts, BATCH * len(self._batches))

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        for number in range(start // BATCH, end // BATCH):
            yield Slice(to_structs(self.event, self._batches[number]), number * BATCH)


class _Nowhere(Observer):
    """A sink whose output is staged and never committed."""

    def observe(self, sink_id: str, batch: pa.RecordBatch) -> None: ...


def _graph(batches: Batches, steps: Callable[[Stream[Any]], Stream[Any]]) -> Graph:
    job = Job("bench")
    steps(job.source(_ArrowSource(batches), id="arrow")).sink(_Nowhere(), id="out")
    return job.graph()


def _batches() -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(7)
    for first in range(0, BATCH * BATCHES, BATCH):
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([f"t{number:09d}" for number in range(first, first + BATCH)]),
                pa.array([f"card-{number}" for number in rng.integers(0, CARDS, BATCH).tolist()]),
                pa.array(rng.integers(0, 5000, BATCH)),
                pa.array(rng.integers(0, 100_000, BATCH) / 4),
                pa.array(rng.integers(0, 2, BATCH) == 1),
            ],
            names=list(Transaction.__struct_fields__),
        )


# ---- what came of it ----------------------------------------------------------------------------------------------------


def _check(loop: Run, chain: Run) -> None:
    """The same rows in the same order, and the same records."""
    by_hand, by_engine = pa.Table.from_batches(loop.outputs), pa.Table.from_batches(chain.outputs)
    assert by_hand.num_rows > 0
    assert by_hand.equals(by_engine), "outputs differ"
    assert loop.records == chain.records, "states differ"


def _numbers(loops: list[Run], chains: list[Run]) -> dict[str, Any]:
    events, millions = BATCH * BATCHES, BATCH * BATCHES / 1e6
    return {
        "events_per_s": spread([events / run.seconds for run in chains], 0),
        "loop_events_per_s": spread([events / run.seconds for run in loops], 0),
        "ratio_vs_loop": spread([a.seconds / b.seconds for a, b in zip(loops, chains, strict=True)], 3),
        "cpu_ratio_vs_loop": spread([a.cpu / b.cpu for a, b in zip(loops, chains, strict=True)], 3),
        "cpu_s_per_million": spread([run.cpu / millions for run in chains], 3),
        "loop_cpu_s_per_million": spread([run.cpu / millions for run in loops], 3),
        "checkpoint_s": spread([run.checkpoint for run in chains], 3),
    }
