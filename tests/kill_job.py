"""The README's job, to be killed: with a journal beside its sink, in many small epochs, each stretched at its steps.

The journal is an appending sink: unlike the README's upserting one, it shows a row that is written twice. Stretching the
steps gives each of them a fair share of the random kills; the protocol does not know of it.

usage: kill_job.py FOLDER MODE LEDGER PACE    (LEDGER: "ledger" or "split-ledger"; PACE: "stretched" or "plain")
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from card_usage import PerCard, Transaction

from streamwork import Job, JsonLines, SqliteSink
from streamwork.components import LedgerEntry
from streamwork.components.commit_rule import settle
from streamwork.epoch import Phase, Verdict
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run

STRETCH = {Phase.PLAN: 0.01, Phase.COMPUTE: 0.01, Phase.PREPARE: 0.02, Phase.COMMIT: 0.1}


class SplitLedger(SqliteSink[Any]):
    """The negative control: rows and ledger row change in two transactions, and a kill is likely to come between."""

    pause = 0.0

    def commit(self, entry: LedgerEntry, staged: Iterator[pa.RecordBatch]) -> None:
        with self._transaction() as db:
            verdict = settle(self._row(db, entry.uid, entry.sink), entry)
            if verdict is Verdict.APPLY:
                self._write(db, staged)
        time.sleep(0.0 if self._key else self.pause)  # a row that replaces one does not show that it came twice
        with self._transaction() as db:
            self._advance(db, entry, entry.end if verdict is Verdict.APPLY else None)


class Stretching:
    """Tells of the first completed checkpoint, and takes its time at every step, if it is to."""

    def __init__(self, pace: str) -> None:
        self.told = False
        self._pace = pace

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        if step is Phase.COMPLETE and not self.told:
            self.told = True
            print("working", flush=True)
        if self._pace == "stretched":
            time.sleep(STRETCH.get(step, 0.0))

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, outcome: Any) -> None: ...
    def close(self) -> None: ...


def build(sink: type[SqliteSink[Any]], here: Path) -> Job:
    job = Job("card-usage")
    usage = job.source(JsonLines(here / "transactions.jsonl", Transaction, max_events=2_000), id="transactions").apply(
        PerCard(), key="card", id="per-card"
    )
    usage.sink(sink(here / "usage.db", "journal"), id="journal")
    usage.sink(sink(here / "usage.db", "usage", key="card"), id="usage")
    return job


if __name__ == "__main__":
    folder, mode, ledger, pace = sys.argv[1:]
    SplitLedger.pause = 0.9 if pace == "stretched" else 0.0
    made = build(SqliteSink if ledger == "ledger" else SplitLedger, Path(folder))
    examples = Path(__file__).parents[1] / "examples"
    options = RunOptions(
        mode=Mode(mode), root=Path(folder) / "root", until_caught_up=True, master="local[2]", module_folder=examples
    )
    run(made, options, Stretching(pace))
    print("done", flush=True)
