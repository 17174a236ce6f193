"""The job of `bench.semantics_errors`: a check that fails once, and a count per card; each event is a row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from streamwork.bench.interval_job import Counted, Seen
from streamwork.bench.open_loop import TABLE, Use
from streamwork.components import Instance, KeyedCollector, KeyedOperator, Operator
from streamwork.connectors import LogSource, SqliteSink
from streamwork.job import Job

FAILS = "fails"
"""This card fails at its first attempt."""
FAILED = "failed"


class Check(Operator[Use, Use]):
    """Fails once, at the first event of card `FAILS`: a file remembers it beyond restarts."""

    keeps_key = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def setup_instance(self, instance: Instance) -> None:
        """Nothing to prepare."""

    def apply(self, event: Use, collector: Any) -> None:
        if event.card == FAILS:
            try:
                os.close(os.open(self._folder / FAILED, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                raise RuntimeError("this event fails once")
        collector.emit(event)


class Count(KeyedOperator[Use, Seen, Counted]):
    def apply(self, event: Use, state: Seen, collector: KeyedCollector) -> None:
        state.seen += 1
        collector.emit(Counted(event.number, event.card, state.seen, event.due))


def build(folder: Path, semantics: dict[str, Any]) -> Job:
    job = Job("errors", checkpoint_every="1s", parallelism=2, **semantics)
    uses = job.source(LogSource(folder / "uses.log", Use), id="uses").apply(Check(folder), id="check")
    uses.apply(Count(), key="card", id="counts").sink(SqliteSink(folder / "out.db", TABLE), id="rows")
    return job
