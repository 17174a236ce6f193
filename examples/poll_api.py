"""Poll an HTTP API for orders above the last number seen, exactly once.

The API answers ``GET /orders?after=N`` with a JSON list of orders in ascending order of their number. The number alone determines
the next orders, so the source is replayable: after a crash the same orders are read again.
"""

import json
import os
from urllib.request import urlopen

from streamwork import Event, EventCollector, Job, Record, SqliteSink, StatefulSource

ADDRESS = os.environ.get("ORDERS_API", "http://127.0.0.1:8000")


class Order(Event):
    number: int
    item: str


class Place(Record):
    after: int = 0


class Orders(StatefulSource[Order, Place]):
    replayable = True

    def __init__(self, address: str) -> None:
        self.address = address

    def setup_instance(self, instance: int, state: Place | None) -> None:
        self.place = state or Place()  # None on the first start

    def get_events(self, collector: EventCollector) -> None:
        with urlopen(f"{self.address}/orders?after={self.place.after}", timeout=10) as answer:
            for row in json.load(answer):
                collector.emit(Order(row["number"], row["item"]))
                self.place.after = row["number"]

    def get_state(self) -> Place:
        return self.place


job = Job("poll-api")
orders = job.source(Orders(ADDRESS), id="orders")
orders.sink(SqliteSink("polled.db", "orders", key="number"), id="orders-table")
