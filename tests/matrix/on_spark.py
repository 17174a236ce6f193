"""Cells of the matrix on a real Spark: the same oracles, sinks as people use them, and workers that are killed.

A cell is a point, a sink and a promise. The cells that are run are chosen (`tiers.covering`): every point meets every kind of sink
and every promise, and every kind of sink every promise, where the combination is not refused.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from crashes import CrashAt
from matrix.oracles import echoed
from matrix.targets import TARGETS, PostgresTarget, kind_of, server
from matrix.world import RETAIN, World
from sample import Payment, Seen, Sums, payments
from streamwork import (
    CallableSink,
    Job,
    KeyedOperator,
    ListSource,
    LogSink,
    ParquetSink,
    PostgresSink,
    RedisSink,
    SqliteSink,
)
from streamwork.epoch import Manifest, Phase
from tiers import covering, pairs

SOAK = bool(os.environ.get("STREAMWORK_SOAK"))
SLICE = 10
EVENTS = payments(5 * SLICE, cards=5)
ECHOES = echoed(5 * SLICE)
STRUCK = 2 * SLICE + 5
"""The place in the input at which a worker is killed."""


class Deadly(KeyedOperator[Payment, Sums, Seen]):
    """Sums, or echoes; and kills the process that it is in, once, at its event."""

    def __init__(self, echoes: bool, struck: Payment | None, marker: Path) -> None:
        self._echoes, self._struck, self._marker = echoes, struck, marker

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        if event == self._struck:
            die_once(self._marker)
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, event.amount if self._echoes else state.total))


class DeadlyTable(SqliteSink[Any]):
    """Kills the process that it is in, once, when it has written an event."""

    struck: int = -1
    marker: Path

    def write(self, batch: pa.RecordBatch) -> None:
        super().write(batch)
        if self.struck in batch.column("total").to_pylist():
            die_once(self.marker)


def die_once(marker: Path) -> None:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Calls:
    """A function to be called, which appends to a file; every call is one write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, event: Seen) -> None:
        with self._path.open("a") as file:
            file.write(f'["{event.card}", {event.number}, {event.total}]\n')


@dataclass(frozen=True)
class Cell:
    point: str
    sink: str
    promise: str

    @property
    def name(self) -> str:
        return f"{self.point}, {self.sink}, {self.promise}"


POINTS: dict[str, tuple[int, Phase] | None] = {
    "after plan": (1, Phase.PLAN),
    "a worker killed in mid compute": None,
    "after all reports": (2, Phase.REPORT),
    "after prepared": (2, Phase.PREPARE),
    "before completed, or after it": (2, Phase.COMMIT),
}
PROMISES = {
    "exactly-once": ("exactly-once", None, "read-committed"),
    "at-most-once": ("at-most-once", None, "read-committed"),
    "at-least-once": ("at-least-once", "checkpoint", "read-committed"),
    "acknowledging": ("at-least-once", "acknowledge", "read-committed"),
    "read-uncommitted": ("exactly-once", None, "read-uncommitted"),
}


def cells(every: bool = SOAK) -> list[Cell]:
    """The chosen ones, or every one that is not refused."""
    at_once = [name for name, (semantics, *_) in PROMISES.items() if semantics != "exactly-once"]
    after_write = [Cell("a worker killed after its write", "journal", name) for name in at_once]
    return [*(product() if every else covering(product(), met)), *after_write]


def met(cell: Cell) -> set[Hashable]:
    """The pairs that a cell meets."""
    return {*pairs(cell.point, kind_of((cell.sink,)), cell.promise), ("sink", cell.sink)}


def product() -> list[Cell]:
    return [
        Cell(point, sink, promise)
        for point in POINTS
        for sink, target in TARGETS.items()
        for promise, (semantics, _, isolation) in PROMISES.items()
        if (target.exactly_once or semantics != "exactly-once") and (target.previews or isolation == "read-committed")
    ]


def world_of(folder: Path, cell: Cell) -> World:
    semantics, tracking, isolation = PROMISES[cell.promise]
    return World(
        folder, (cell.sink,), "sums" if semantics == "exactly-once" else "echo", semantics, tracking, isolation
    )


def job_of(world: World, cell: Cell, events: Sequence[Payment]) -> Job:
    job = Job(
        "matrix",
        semantics=world.semantics,
        tracking=world.tracking,  # type: ignore[arg-type]
        checkpoint_every=0,
        retain=RETAIN,
        retry_after=0,
    )
    killed = cell.point == "a worker killed in mid compute"
    operator = Deadly(world.operator == "echo", events[STRUCK] if killed else None, world.folder / "killed")
    source = job.source(ListSource(events, Payment, max_events=SLICE), id="payments")
    seen = source.apply(operator, key="card", id="sums", parallelism=2)
    seen.sink(_sink(world, cell), id=cell.sink, isolation=world.isolation)
    return job


def _sink(world: World, cell: Cell) -> Any:
    target, name = world.targets[cell.sink], cell.sink
    key = "card" if target.keyed else None
    if cell.point == "a worker killed after its write":
        deadly = DeadlyTable(world.database, name, key)
        deadly.struck, deadly.marker = STRUCK, world.folder / "killed"
        return deadly
    if isinstance(target, PostgresTarget):
        return PostgresSink(target.dsn, name, key)
    plain = {
        "hashes": lambda: RedisSink(server("redis_server").url, "card", name),
        "files": lambda: ParquetSink(world.folder / name),
        "log": lambda: LogSink(world.log, key="card", partitions=2),
        "calls": lambda: CallableSink(Calls(world.folder / "calls.jsonl")),
    }
    return plain.get(name, lambda: SqliteSink(world.database, name, key))()


class Remembering(CrashAt):
    """Lets a world know of the manifests, and crashes where the cell says."""

    def __init__(self, world: World, at: tuple[int, Phase] | None) -> None:
        super().__init__(*(at or (10**9, None)))
        self._world = world

    def on_phase(self, step: Phase, epoch: int, manifest: Manifest | None) -> None:
        if step in (Phase.PREPARE, Phase.READY):
            for path in self._world.home.glob(f"checkpoints/{epoch:012d}*.json"):
                if path.name.split(".", 1)[1] != "plan.json":
                    self._world._remember(path)
        super().on_phase(step, epoch, manifest)
