"""A keyed echo into SQLite, PostgreSQL and Redis, for the soak. What it promises and where it writes is in the environment."""

from __future__ import annotations

import os
from typing import Any

from sample import Payment, Seen, Sums
from streamwork import Backoff, Job, JsonLines, KeyedOperator, PostgresSink, RedisSink, SqliteSink

PROMISES = {
    "exactly-once": ("exactly-once", None, "read-committed"),
    "at-most-once": ("at-most-once", None, "read-committed"),
    "at-least-once": ("at-least-once", "checkpoint", "read-committed"),
    "acknowledging": ("at-least-once", "acknowledge", "read-committed"),
    "read-uncommitted": ("exactly-once", None, "read-uncommitted"),
}


class Echo(KeyedOperator[Payment, Sums, Seen]):
    """Each row tells which event it was, by its amount, and the how many-th of its card."""

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, event.amount))


def build(promise: str, dsn: str, url: str) -> Job:
    """Everything is retained, so that in the end the plans tell which epochs came to nothing."""
    semantics, tracking, isolation = PROMISES[promise]
    job = Job(
        "soak",
        semantics=semantics,
        tracking=tracking,  # type: ignore[arg-type]
        checkpoint_every="20ms",
        retain=100_000,
        max_attempts=1_000,
        retry_after="100ms",
        restart=Backoff(max_restarts=100_000, within="1h", first="100ms", factor=2.0, most="500ms"),
    )
    source = job.source(JsonLines("payments.jsonl", Payment, max_events=500), id="payments")
    seen = source.apply(Echo(), key="card", id="echo", parallelism=2)
    seen.sink(SqliteSink("out.db", "journal"), id="journal", isolation=isolation)
    seen.sink(PostgresSink(dsn, "items"), id="items", isolation=isolation)
    seen.sink(RedisSink(url, "card", "hashes"), id="hashes")
    return job


if "STREAMWORK_SOAK_PROMISE" in os.environ:
    soak = build(*(os.environ[f"STREAMWORK_SOAK_{name}"] for name in ("PROMISE", "DSN", "URL")))
