"""Job files for tests of `compare`: their text, and the folder of a job that has run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from savepoint_jobs import Place

HEAD = """
import random
import uuid
from datetime import datetime, timedelta

from streamwork import Event, Job, JsonLines, KeyedOperator, Record, SqliteSink, CallableSink, field

class Payment(Event):
    card: str
    amount: int

class Usage(Event):
    card: str
    number: int
    total: int

class Totals(Record):
    number: int = 0
    total: int = 0
"""
BODY = """
class PerCard(KeyedOperator[Payment, Totals, Usage]):
    def apply(self, event, state, collector):
        {before}
        state.number += 1
        state.total += event.amount
        collector.emit(Usage(event.card, state.number, state.total))

job = Job("usage", checkpoint_every=0, parallelism={parallelism})
payments = job.source(JsonLines("payments.jsonl", Payment, max_events=5), id="payments")
usage = payments.apply(PerCard(), key="card", id="per-card")
{sinks}
"""
SINKS = """
usage.sink(SqliteSink("journal.db", "journal"), id="journal")
usage.sink(SqliteSink("latest.db", "latest", key="card"), id="latest")
"""


def version(before: str = "pass", sinks: str = SINKS, head: str = HEAD, parallelism: int = 2) -> str:
    """The text of a job file."""
    return head + BODY.format(before=before, sinks=sinks, parallelism=parallelism)


class Lab(Place):
    """A job that has run over 20 events, a savepoint `base`, and 40 events behind it."""

    def __init__(self, folder: Path, text: str = "") -> None:
        super().__init__(folder)
        self.file("usage.py", text or version())
        self.give(20)
        self.catch_up()
        self.save("base")
        self.give(40)

    def file(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def compare(self, *words: object) -> Any:
        return self.ask("compare", *words, "--from", "savepoint:base")


def part(answer: Any, kind: str, component: str) -> Any:
    (found,) = [one for one in answer[kind] if one["component"] == component]
    return found
