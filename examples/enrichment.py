"""Add the price of its product to each sale, from a table in SQLite.

While the database cannot be read, the sale is retried, for up to a minute. A sale of an unknown product is not retried:
it becomes a dead letter. ``streamwork dead-letters list enrichment.py`` lists them; ``replay`` applies them again.
"""

import sqlite3
from pathlib import Path

from streamwork import Event, EventCollector, Job, JsonLines, Operator, Retry, SqliteSink

PRICES = Path(__file__).parent / "prices.db"


class Sale(Event):
    id: str
    product: str
    pieces: int


class Priced(Event):
    id: str
    product: str
    cents: int


class UnknownProduct(Exception):
    retryable = False


class AddPrice(Operator[Sale, Priced]):
    deterministic = False  # the table may change between two attempts

    def __init__(self, database: Path) -> None:
        self.database = database

    def setup_instance(self, instance: int) -> None:
        self.db = sqlite3.connect(self.database)  # an ordinary attribute, set in each process

    def apply(self, event: Sale, collector: EventCollector) -> None:
        found = self.db.execute("SELECT cents FROM prices WHERE product = ?", (event.product,)).fetchone()
        if found is None:
            raise UnknownProduct(event.product)
        collector.emit(Priced(event.id, event.product, found[0] * event.pieces))

    def close(self) -> None:
        self.db.close()


job = Job("enrichment")
sales = job.source(JsonLines("sales.jsonl", Sale), id="sales")
priced = sales.apply(AddPrice(PRICES), id="add-price", on_error=Retry(within="1min", then="dead-letter"))
priced.sink(SqliteSink("priced.db", "priced", key="id"), id="priced")
