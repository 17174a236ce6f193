"""`build`: the job, from its files and its writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamwork import Job, LogSource, Retry, Sink

from .analyser import UsageAnalyser
from .events import Transaction, Usage
from .look_up import LookUp, LookUpBatches

OUTAGE = Retry(within=None, then="fail", first="20ms", most="1s")
"""An outage of the store delays the job for as long as it lasts."""


def build(
    log: Path, decisions: Path, writer: Sink[Usage], look_up: str = "batches", max_events: int = 100_000, **job: Any
) -> Job:
    """The job; `max_events` is the limit of a checkpoint, `job` has further settings of it."""
    made = Job("system-usage", **job)
    transactions = made.source(LogSource(log, Transaction, max_events=max_events), id="transactions")
    operator = {"batches": LookUpBatches, "events": LookUp}[look_up](decisions)
    judged = transactions.apply(operator, id="look-up", on_error=OUTAGE)
    judged.apply(UsageAnalyser(), key="meter", id="analyser").sink(writer, id="usage")
    return made
