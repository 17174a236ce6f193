"""The events of the job."""

from __future__ import annotations

from datetime import datetime

from streamwork import Event

METER = "all"
"""The key of the numbers: there is one meter for the whole system."""


class Transaction(Event):
    """A transaction as fraud detection appends it to its log. A log is read with all its fields."""

    id: str
    card: str
    merchant: str
    latitude: float
    longitude: float
    amount: float
    at: datetime


class Judged(Event):
    """A transaction and its verdict: "fraud", "no fraud" or "unknown"."""

    meter: str
    transaction: str
    amount: float
    verdict: str

    @property
    def is_valid(self) -> bool:
        return bool(self.transaction) and self.amount >= 0


class Usage(Event):
    """A transaction, its verdict, and the numbers of the system up to it."""

    meter: str
    transaction: str
    verdict: str
    transactions: int
    fraudulent: int
    unknown: int
