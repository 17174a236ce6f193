"""The events and the job of ``streamwork bench joins``. Importable by Spark's workers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from streamwork.bench.epochs import KeepingSink
from streamwork.bench.timed_events import KEY, LATENESS, PARALLELISM
from streamwork.components import Event
from streamwork.connectors import LogSource
from streamwork.job import Job

WITHIN = "30s"


class Click(Event, frozen=True):
    click: int
    at: datetime
    user: str
    price: float


class Purchase(Event, frozen=True):
    purchase: int
    at: datetime
    user: str
    amount: float


def build(name: str, clicks: Path, purchases: Path, ledger: Path) -> tuple[Job, KeepingSink]:
    job, sink = Job(name, checkpoint_every=0, parallelism=PARALLELISM), KeepingSink(ledger)
    left = job.source(LogSource(clicks, Click, max_events=1 << 40), id="clicks", time="at")
    right = job.source(LogSource(purchases, Purchase, max_events=1 << 40), id="purchases", time="at")
    left.join(right, key=KEY, within=WITHIN, lateness=LATENESS, id="attribution").sink(sink, id="pairs")
    return job, sink
