"""A keyed count behind an exchange, for tests in which Spark loses processes. Files are in the current folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import streamwork
from sample import Payment, Summing
from streamwork import Backoff, Event, Job, JsonLines, Operator, SqliteSink

HERE = Path.cwd()  # by itself a relative path would be one beside this file
job = Job(
    "lost",
    checkpoint_every=0,
    restart=Backoff(max_restarts=100_000, within="1h", first="100ms", factor=2.0, most="500ms"),
)
sums = job.source(JsonLines(HERE / "payments.jsonl", Payment, max_events=2_000), id="payments").apply(
    Summing(), key="card", id="sums", parallelism=2
)
sums.sink(SqliteSink(HERE / "out.db", "journal"), id="journal")
sums.sink(SqliteSink(HERE / "out.db", "latest", key="card"), id="latest")


class Where(Event):
    host: str
    process: int
    package: str


class Telling(Operator[Payment, Where]):
    """Tells where it runs, and where from it has the package."""

    def apply(self, event: Payment, collector: Any) -> None:
        collector.emit(Where(socket.gethostname(), os.getpid(), streamwork.__file__))


telling = Job("telling", checkpoint_every=0)
where = telling.source(JsonLines(HERE / "payments.jsonl", Payment), id="payments").apply(
    Telling(), id="where", parallelism=2, grouping=streamwork.shuffle()
)
where.sink(SqliteSink(HERE / "where.db", "places"), id="places")
