"""Import purchases from a log into PostgreSQL, exactly once: each event of the log is one row, also after kill -9.

    streamwork log create purchases.log --event import_purchases.py:Purchase --key customer --partitions 2
    streamwork log append purchases.log < purchases.jsonl
    POSTGRES=postgresql://user@localhost/shop streamwork run import_purchases.py --mode local

The rows of a checkpoint and the position of the job change in one transaction of the database. The table has no key: a row that is
written twice would be there twice.
"""

import os
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from streamwork import Digits, Event, Job, LogSource, PostgresSink

ADDRESS = os.environ.get("POSTGRES", "postgresql://localhost/shop")


class Purchase(Event):
    id: str
    customer: str
    amount: Annotated[Decimal, Digits(12, 2)]  # numeric(12, 2) in PostgreSQL
    at: datetime


job = Job("import-purchases", parallelism=2)
purchases = job.source(LogSource("purchases.log", Purchase, max_events=10_000), id="purchases")  # in one transaction
purchases.sink(PostgresSink(ADDRESS, "purchases"), id="table")
