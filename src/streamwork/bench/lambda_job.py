"""The jobs of ``streamwork bench lambda``, and the process that runs one of them and may kill itself in the middle.

``python -c CHILD FOLDER WAY KILL_AT`` prints one line of JSON: the seconds of the run, and its CPU seconds.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec

from streamwork.components import Event, KeyedCollector, KeyedOperator, Record
from streamwork.connectors import LogSource
from streamwork.job import Job, Stream
from streamwork.lambdas import Lambda
from streamwork.lambdas.batch_run import run_batch
from streamwork.operators.aggregates import count, max_of, sum_of
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run

NAME, COUNTS = "spending", "spending"
STREAM, BATCH, EXACTLY_ONCE = "stream", "batch", "exactly_once"
CHILD = "import sys; from streamwork.bench import lambda_job; lambda_job.live(*sys.argv[1:])"


class Purchase(Event, frozen=True):
    card: str
    amount: int


class Spending(Event, frozen=True):
    card: str
    purchases: int
    total: int
    most: int


class Sums(Record):
    purchases: int = 0
    total: int = 0
    most: int = 0


class Spend(KeyedOperator[Purchase, Sums, Spending]):
    """The aggregates of the lambda as one exactly-once job has them."""

    def apply(self, event: Purchase, state: Sums, collector: KeyedCollector) -> None:
        state.purchases += 1
        state.total += event.amount
        state.most = max(state.most, event.amount)


class Killer:
    """Passes events on, and kills the process at the one with this number."""

    def __init__(self, kill_at: int) -> None:
        self._left = kill_at

    def __call__(self, event: Purchase) -> bool:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


def definition(folder: Path, slice_size: int, kill_at: int = 0) -> Lambda[Spending]:
    def events(job: Job) -> Stream[Purchase]:
        return _events(job, folder, slice_size, kill_at)

    return Lambda(
        NAME,
        events=events,
        key="card",
        to=Spending,
        purchases=count(),
        total=sum_of("amount"),
        most=max_of("amount"),
    )


def exactly_once(folder: Path, slice_size: int, kill_at: int = 0) -> Job:
    job = Job("exact", checkpoint_every=0)
    _events(job, folder, slice_size, kill_at).apply(Spend(), key="card", id=COUNTS)
    return job


def _events(job: Job, folder: Path, slice_size: int, kill_at: int) -> Stream[Purchase]:
    source = job.source(LogSource(folder / "purchases.log", Purchase, max_events=slice_size), id="purchases")
    return source.filter(Killer(kill_at), id="killer") if kill_at else source


def live(folder: str, way: str, slice_size: str, kill_at: str) -> None:
    home, size, at = Path(folder), int(slice_size), int(kill_at)
    began = time.monotonic()
    if way == BATCH:
        run_batch(definition(home, size), home / "root", mode=Mode.LOCAL)
    else:
        lambdas = definition(home, size, at)
        job = lambdas.stream(checkpoint_every=0) if way == STREAM else exactly_once(home, size, at)
        run(job, RunOptions(root=home / "root", mode=Mode.LOCAL, until_caught_up=True, take_over=True))
    print(msgspec.json.encode({"seconds": time.monotonic() - began, "cpu": time.process_time()}).decode())
