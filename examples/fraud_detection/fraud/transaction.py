"""`Transaction`: a payment with a card, as the bank sends it; and the log that keeps all of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from streamwork import Event, EventLog

from .settings import PARTITIONS


class Transaction(Event):
    id: str
    card: str
    merchant: str
    latitude: float  # of the merchant, in degrees
    longitude: float
    amount: float
    at: datetime


def open_log(path: Path) -> EventLog[Transaction]:
    """The log of all transactions, which is created if it does not exist.

    It is partitioned by card, so the job reads each card in order and without an exchange. Readers see an event as soon as `append`
    returns. It is synced every second: a killed process loses nothing, a power failure at most the last second.
    """
    return EventLog[Transaction].create(
        path, Transaction, key="card", partitions=PARTITIONS, exist_ok=True, fsync="interval"
    )
