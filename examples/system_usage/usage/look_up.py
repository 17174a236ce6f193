"""`LookUp`: the verdict of each transaction. Its result depends on the moment: a verdict may arrive between two attempts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamwork import BatchCollector, EventCollector, Operator

from .decisions import Decisions
from .events import METER, Judged, Transaction

NAMES = {True: "fraud", False: "no fraud", None: "unknown"}


class LookUp(Operator[Transaction, Judged]):
    """Adds the verdict to each transaction, one by one: each one without a verdict waits 20 ms."""

    deterministic = False

    def __init__(self, path: Path) -> None:
        self._store = Decisions(path)

    def apply(self, event: Transaction, collector: EventCollector) -> None:
        for judged in self._judged([(event.id, event.amount)]):
            collector.emit(judged)

    def _judged(self, transactions: list[tuple[str, float]]) -> Iterator[Judged]:
        asked = [Judged(METER, id, amount, NAMES[None]) for id, amount in transactions]
        found = self._store.find(one.transaction for one in asked if one.is_valid)
        return (Judged(METER, one.transaction, one.amount, NAMES[found.get(one.transaction)]) for one in asked)


class LookUpBatches(LookUp):
    """The same for whole batches: the transactions of a batch that have no verdict wait together, for 20 ms."""

    def apply_batch(self, batch: Any, collector: BatchCollector) -> None:
        for judged in self._judged(list(zip(batch["id"].to_pylist(), batch["amount"].to_pylist(), strict=True))):
            collector.emit(judged)
