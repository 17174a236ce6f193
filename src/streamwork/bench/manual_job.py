"""The process of ``streamwork bench manual``: runs the job once, and may kill itself in the middle.

``python -c CHILD FOLDER WAY INTERVAL EVENTS_PER_EPOCH KILL_AT`` prints one line of JSON: the seconds of the run. How often an event
was applied in this life is in the file `applied`, also if the process has killed itself.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec

from streamwork.bench.epochs import DiscardSink
from streamwork.components import KeyedCollector, KeyedOperator, Record
from streamwork.components.values import Event
from streamwork.connectors import LogSource
from streamwork.job import Job
from streamwork.manual import Positioned, RewindingSource, SqliteStore, by_hand
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run

COUNTS = "counts"
JOB = "manual"
BY_HAND, AT_LEAST_ONCE, EXACTLY_ONCE = WAYS = ("by_hand", "at_least_once", "exactly_once")
CHILD = "import sys; from streamwork.bench import manual_job; manual_job.live(*sys.argv[1:])"


class Logged(Event, frozen=True):
    """What is in the log."""

    card: str
    amount: int


class Use(Positioned, frozen=True):
    card: str
    amount: int


class Usage(Event, frozen=True):
    card: str
    count: int
    total: int


class Count(Record):
    count: int = 0
    total: int = 0


class Counting(KeyedOperator[Use, Count, Usage]):
    """Kills its process when it has applied an event so often."""

    def __init__(self, folder: Path, kill_at: int) -> None:
        self.applied = 0
        self._folder = folder
        self._kill_at = kill_at

    def apply(self, event: Use, state: Count, collector: KeyedCollector) -> None:
        self.applied += 1
        state.count += 1
        state.total += event.amount
        collector.emit(Usage(event.card, state.count, state.total))
        if self.applied == self._kill_at:
            self.close()
            os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        (self._folder / "applied").write_text(str(self.applied))


def build(folder: Path, way: str, interval: str, size: int, kill_at: int = 0) -> Job:
    """`size` is how many events the engine's checkpoints are apart: as many as come in an interval."""
    log, operator = LogSource(folder.parent / "log", Use, max_events=size), Counting(folder, kill_at)
    sink = DiscardSink(folder / "ledger.json")
    if way == BY_HAND:
        job = Job(JOB, semantics="at-most-once", checkpoint_every=0)
        store = SqliteStore(folder / "state.db")
        source = RewindingSource(log, store, rewind=interval, every=interval, on_gap="reread")
        uses = job.source(source, id="uses")
        by_hand(uses, operator, key="card", store=store, every=interval, id=COUNTS).sink(sink, id="usage")
        return job
    job = Job(JOB, semantics="exactly-once" if way == EXACTLY_ONCE else "at-least-once", checkpoint_every=0)
    job.source(log, id="uses").apply(operator, key="card", id=COUNTS).sink(sink, id="usage")
    return job


def live(folder: str, way: str, interval: str, size: str, kill_at: str) -> None:
    job = build(Path(folder), way, interval, int(size), int(kill_at))
    began = time.monotonic()
    run(job, RunOptions(root=Path(folder) / "root", mode=Mode.LOCAL, until_caught_up=True))
    print(msgspec.json.encode({"seconds": time.monotonic() - began}).decode())
