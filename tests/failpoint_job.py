"""A job that sends itself a signal at a chosen step of the protocol. What runs it is the command line itself.

usage: failpoint_job.py FAILPOINT COMMAND ...    (COMMAND: what follows `streamwork`, with --json)

FAILPOINT is PHASE/STEP/N/SIGNAL: at the N-th time that STEP is told in a PHASE ("recovery", or "epochs" after it), the process
gets SIGNAL before anything else happens; "none" is none. Files are in the current folder.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from sample import Payment, Summing
from streamwork import Job, JsonLines, SqliteSink
from streamwork.__main__ import main
from streamwork.cli import progress
from streamwork.components import LedgerEntry, LedgerRow
from streamwork.epoch import Manifest, Phase, Started

SLICE = 10
"""Events of one epoch."""


class NoLedger(SqliteSink[Any]):
    """The negative control: it writes its ledger, for the test to read, but neither it nor the driver ever looks at it. The driver
    is told that it is registered, and has never written."""

    def ledger(self, uid: str, sink_id: str) -> LedgerRow | None:
        row = super().ledger(uid, sink_id)
        return None if row is None else LedgerRow(row.fence, None, "")

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        with self._transaction() as db:
            self._write(db, staged)
            self._advance(db, entry, entry.end)


class Failing(progress.PlainWatcher):
    """Shows the run, until it comes to the failpoint."""

    failpoint = "none"

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._part = "recovery"
        self._told: list[Phase] = []

    def on_started(self, job: str, started: Started) -> None:
        super().on_started(job, started)
        self._part, self._told = "epochs", []

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        self._told.append(phase)
        place, _, name = self.failpoint.rpartition("/")
        if place == f"{self._part}/{phase.value}/{self._told.count(phase)}":
            self._say(f"{name} at {place}, epoch {epoch}")
            os.kill(os.getpid(), signal.Signals[name])
        super().on_phase(phase, epoch, manifest)


def build(name: str = "guarded", sink: type[SqliteSink[Any]] = SqliteSink, folder: Path | None = None) -> Job:
    folder = folder or Path.cwd()  # by itself a relative path would be one beside this file
    job = Job(name, checkpoint_every=0)
    source = JsonLines(folder / "payments.jsonl", Payment, max_events=SLICE)
    seen = job.source(source, id="payments").apply(Summing(), key="card", id="sums")
    seen.sink(sink(folder / "out.db", "journal"), id="journal")
    seen.sink(sink(folder / "out.db", "latest", key="card"), id="latest")
    return job


guarded = build()
unguarded = build("unguarded", NoLedger)

if __name__ == "__main__":
    Failing.failpoint = sys.argv[1]
    progress.PlainWatcher = Failing  # type: ignore[misc]
    main(sys.argv[2:])
