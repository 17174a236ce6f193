"""Count the transactions of the card network, and those that fraud detection judged fraudulent, exactly once.

    streamwork run usage.py                          # exactly-once, on Spark
    USAGE_SINK=append streamwork run usage.py --semantics at-least-once --mode local

| variable | default | |
|---|---|---|
| TRANSACTIONS | transactions.log | the log of transactions |
| RESULTS | results.db | the result store of fraud detection |
| USAGE | usage.db | the database that the job writes |
| USAGE_SINK | upsert | upsert, append or increment |
| USAGE_LOOKUP | batches | batches or events; `--tracking acknowledge` needs events |

Relative paths are resolved against the folder of this file.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from usage_events import METER, Judged, Transaction, Usage
from verdicts import ResultStore
from usage_writers import WRITERS

from streamwork import (
    BatchCollector,
    EventCollector,
    Job,
    KeyedCollector,
    KeyedOperator,
    LogSource,
    Operator,
    Record,
    Retry,
    Sink,
)
from streamwork.components import Located

OUTAGE = Retry(within=None, then="fail", first="20ms", most="1s")
"""An outage of the result store delays the job, for as long as it lasts."""


class Totals(Record):
    transactions: int = 0
    fraudulent: int = 0
    unknown: int = 0


def is_valid(id: str, amount: float) -> bool:
    return bool(id) and amount >= 0


class LookUp(Located, Operator[Transaction, Judged]):
    """Adds the verdict to each transaction, one by one: a transaction without a verdict takes 20 ms."""

    deterministic = False  # the verdict may arrive, or change, between two attempts

    def __init__(self, path: Path) -> None:
        self.path = path

    def apply(self, event: Transaction, collector: EventCollector) -> None:
        for judged in self._judged([(event.id, event.amount)]):
            collector.emit(judged)

    def _judged(self, transactions: list[tuple[str, float]]) -> Iterable[Judged]:
        found = ResultStore(self.path).verdicts(id for id, amount in transactions if is_valid(id, amount))
        names = {True: "fraud", False: "no fraud", None: "unknown"}
        return (Judged(METER, id, amount, names[found.get(id)]) for id, amount in transactions)


class LookUpBatches(LookUp):
    """The same for whole batches: all transactions of a batch wait together, for 20 ms at most."""

    def apply_batch(self, batch: Any, collector: BatchCollector) -> None:
        for judged in self._judged(list(zip(batch["id"].to_pylist(), batch["amount"].to_pylist(), strict=True))):
            collector.emit(judged)


class UsageAnalyser(KeyedOperator[Judged, Totals, Usage]):
    """Counts. "No verdict" is not "no fraud": these transactions are counted apart. An invalid transaction ends here."""

    def apply(self, event: Judged, state: Totals, collector: KeyedCollector) -> None:
        if not is_valid(event.transaction, event.amount):
            return
        state.transactions += 1
        state.fraudulent += event.verdict == "fraud"
        state.unknown += event.verdict == "unknown"
        numbers = state.transactions, state.fraudulent, state.unknown
        collector.emit(Usage(event.meter, event.transaction, event.verdict, *numbers))


def build(transactions: Path, results: Path, writer: Sink[Usage], look_up: str = "batches", **settings: Any) -> Job:
    """The job, with other files, another writer, or other settings of the source or of the job."""
    operators = {"batches": LookUpBatches, "events": LookUp}
    source = LogSource(transactions, Transaction, max_events=settings.pop("max_events", 100_000))
    job = Job("system-usage", **settings)
    judged = job.source(source, id="transactions").apply(operators[look_up](results), id="look-up", on_error=OUTAGE)
    judged.apply(UsageAnalyser(), key="meter", id="analyser").sink(writer, id="usage")
    return job


job = build(
    Path(os.environ.get("TRANSACTIONS", "transactions.log")),
    Path(os.environ.get("RESULTS", "results.db")),
    WRITERS[os.environ.get("USAGE_SINK", "upsert")](Path(os.environ.get("USAGE", "usage.db"))),
    os.environ.get("USAGE_LOOKUP", "batches"),
)
