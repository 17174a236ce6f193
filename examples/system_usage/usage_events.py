"""The events of the job."""

from datetime import datetime

from streamwork import Event

METER = "all"
"""The key of the numbers: there is one meter for the whole system."""


class Transaction(Event):
    """A transaction as the gateway of fraud detection appends it to the log."""

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


class Usage(Event):
    """A transaction, its verdict, and the numbers of the system up to it."""

    meter: str
    transaction: str
    verdict: str
    transactions: int
    fraudulent: int
    unknown: int
