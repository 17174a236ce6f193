"""The events and the jobs of ``streamwork bench windows``. Importable by Spark's workers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from streamwork.bench.epochs import KeepingSink
from streamwork.bench.timed_events import KEY, LATENESS, PARALLELISM
from streamwork.components import Event
from streamwork.connectors import LogSource
from streamwork.job import Job
from streamwork.operators.aggregates import count, sum_of
from streamwork.operators.windows import Window


class View(Event, frozen=True):
    id: int
    at: datetime
    user: str
    price: float


class Views(Event, frozen=True):
    user: str
    window_start: datetime
    window_end: datetime
    views: int
    spent: float


def build(name: str, window: Window, log: Path, ledger: Path) -> tuple[Job, KeepingSink]:
    job, sink = Job(name, checkpoint_every=0, parallelism=PARALLELISM), KeepingSink(ledger)
    views = job.source(LogSource(log, View, max_events=1 << 40), id="views", time="at")
    windows = views.window(window, key=KEY, lateness=LATENESS, id="windows")
    windows.aggregate(Views, views=count(), spent=sum_of("price")).sink(sink, id="results")
    return job, sink
