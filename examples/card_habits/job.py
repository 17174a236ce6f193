"""Fraud detection that knows the habits of each card: a lambda.

streamwork run examples/card_habits/job.py --mode live         decides at once
streamwork lambda run examples/card_habits/job.py              computes the habits, from all payments
"""

import os
from pathlib import Path
from typing import Any

from habits.judge import Judge
from habits.model import AllAmounts
from habits.payments import Payment

from streamwork import Event, EventLog, Instance, Job, LogSource, SqliteSink, Stream, count, max_of, sum_of
from streamwork.lambdas import Lambda, View, open_view

DATA = Path(os.environ.get("HABITS_DATA") or Path(__file__).parent / "data").absolute()
LOG, VERDICTS = DATA / "payments.log", DATA / "verdicts.db"
EventLog.create(
    LOG, Payment, key="card", partitions=2, exist_ok=True
).close()  # the job may start before the first payment


class Spending(Event):
    card: str
    payments: int
    total: float
    most: float


def payments(job: Job) -> Stream[Payment]:
    return job.source(LogSource(LOG, Payment), id="payments")


def decide(events: Stream[Payment]) -> None:
    """In the streaming job only."""
    verdicts = events.apply(Judge(open_habits), key="card", id="judge")
    verdicts.sink(SqliteSink(VERDICTS, table="verdicts", key="payment"), id="verdicts")


def remember(events: Stream[Payment]) -> None:
    """In batch runs only."""
    events.apply(AllAmounts(), key="card", id="amounts")


card_habits = Lambda(
    "card-habits",
    events=payments,
    key="card",
    to=Spending,
    streaming=decide,
    batch=remember,
    payments=count(),
    total=sum_of("amount"),
    most=max_of("amount"),
)


def open_habits(instance: Instance) -> View[Any]:
    return open_view(card_habits, instance.folder.parent)


job = card_habits.stream(checkpoint_every="1s")
