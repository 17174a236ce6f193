"""Fraud detection: three analysers in parallel, one decision for each transaction, within milliseconds.

streamwork run examples/fraud_detection/job.py --mode live
"""

from fraud import settings
from fraud.aggregator import Aggregator
from fraud.average_ticket import AverageTicket
from fraud.count import LATE, WINDOW, Counted, count_score, late_score
from fraud.proximity import Proximity
from fraud.result_table import ResultTable
from fraud.score import AVERAGE_TICKET, COUNT, PROXIMITY, Score
from fraud.transaction import Transaction, open_log

from streamwork import Fixed, Job, LogSource, count

open_log(settings.LOG).close()  # the job may start before the gateway

job = Job(
    "fraud-detection",
    semantics="at-most-once",
    checkpoint_every=settings.CHECKPOINT_EVERY,
    parallelism=settings.PARALLELISM,
)
transactions = job.source(LogSource(settings.LOG, Transaction, start="latest"), id="transactions", time="at")

# Each analyser has a process of its own in live mode: one that fails, hangs or dies costs its score, and nothing else.
ticket = transactions.apply(AverageTicket(), key="card", id=AVERAGE_TICKET, isolated=True, deadline=settings.HANGS)
places = transactions.apply(Proximity(), key="card", id=PROXIMITY, isolated=True, deadline=settings.HANGS)
windows = transactions.window(
    Fixed(WINDOW), key="card", emit="event", lateness=LATE, id=COUNT, isolated=True, deadline=settings.HANGS
)
counted = windows.aggregate(Counted, in_window=count())
counts = counted.map(count_score).union(counted.channel("late").map(late_score, to=Score))

scores = ticket.union(places, counts)
decisions = scores.apply(Aggregator(), key="transaction", id="aggregator")
decisions.sink(ResultTable(settings.DECISIONS), id="decisions")
