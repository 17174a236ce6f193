"""The job of ``streamwork bench query``, in a process of its own: `python -m streamwork.bench.query_job FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from streamwork.bench.epochs import DiscardSink
from streamwork.bench.keyed_state_job import COUNTS, Counting, CountingColumns, Use
from streamwork.connectors import LogSource
from streamwork.job import Job
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run

NAME = "asked"
EPOCH_EVENTS = 50_000


def build(folder: Path, columns: bool) -> Job:
    """A count per card; by columns to fill the state, by event to be measured."""
    job = Job(NAME, checkpoint_every=0)
    uses = job.source(LogSource(folder / "log", Use, max_events=EPOCH_EVENTS), id="uses")
    operator = CountingColumns() if columns else Counting()
    uses.apply(operator, key="card", id=COUNTS).sink(DiscardSink(folder / "ledger.json"), id="usage")
    return job


def start(folder: Path, columns: bool) -> None:
    """Run until all events are counted."""
    options = RunOptions(mode=Mode.LOCAL, root=folder / "root", until_caught_up=True, retain=100_000)
    run(build(folder, columns), options)


if __name__ == "__main__":
    start(Path(sys.argv[1]), columns=False)
