from streamwork import Event, Job, JsonLines, KeyedCollector, KeyedOperator, Record, SqliteSink


class Transaction(Event):  # frozen and typed; its fields are an Arrow schema
    id: str
    card: str
    amount: float


class Usage(Event):
    card: str
    transactions: int
    total: float


class Totals(Record):  # state: its fields are the columns of the state files
    transactions: int = 0
    total: float = 0.0


class PerCard(KeyedOperator[Transaction, Totals, Usage]):
    def apply(self, event: Transaction, state: Totals, collector: KeyedCollector) -> None:
        state.transactions += 1
        state.total += event.amount
        collector.emit(Usage(event.card, state.transactions, state.total))


job = Job("card-usage")
transactions = job.source(JsonLines("transactions.jsonl", Transaction), id="transactions")
transactions.apply(PerCard(), key="card", id="per-card").sink(SqliteSink("usage.db", "usage", key="card"), id="usage")
