"""Emit each order once, although its sender repeats orders. An id is kept for an hour of event time."""

from datetime import datetime, timedelta

from streamwork import Event, Job, JsonLines, KeyedCollector, KeyedOperator, Record, SqliteSink

REMEMBERED = timedelta(hours=1)


class Order(Event):
    id: str
    item: str
    at: datetime


class Seen(Record):
    seen: bool = False


class FirstOnly(KeyedOperator[Order, Seen, Order]):
    def apply(self, event: Order, state: Seen, collector: KeyedCollector) -> None:
        if not state.seen:
            state.seen = True
            collector.set_timer(event.at + REMEMBERED)
            collector.emit(event)

    def on_timer(self, key: str, at: datetime, state: Seen, collector: KeyedCollector) -> None:
        collector.clear_state()  # so that the state holds the ids of one hour only


job = Job("deduplicate")
orders = job.source(JsonLines("orders.jsonl", Order), id="orders", time="at")
orders.apply(FirstOnly(), key="id", id="first-only").sink(SqliteSink("orders.db", "orders"), id="once")
