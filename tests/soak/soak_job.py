"""A keyed echo into SQLite, PostgreSQL and Redis, for the soak. What it promises, reads and writes is in the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from sample import Payment, Seen, Sums
from streamwork import (
    Backoff,
    Job,
    JsonLines,
    KeyedOperator,
    PostgresSink,
    Record,
    RedisSink,
    SqliteSink,
    StatefulSource,
)

PROMISES = {
    "exactly-once": ("exactly-once", None, "read-committed"),
    "at-most-once": ("at-most-once", None, "read-committed"),
    "at-least-once": ("at-least-once", "checkpoint", "read-committed"),
    "acknowledging": ("at-least-once", "acknowledge", "read-committed"),
    "read-uncommitted": ("exactly-once", None, "read-uncommitted"),
}
POISON_EVERY = 53
"""Every so many-th event fails until the file `repaired` is there, and is then a dead letter."""


class Echo(KeyedOperator[Payment, Sums, Seen]):
    """Each row tells which event it was, by its amount, and the how many-th of its card."""

    def __init__(self, repaired: Path) -> None:
        self.repaired = repaired

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        if event.amount % POISON_EVERY == 0 and not self.repaired.exists():
            raise ValueError(f"poison {event.amount}")
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, state.number, event.amount))


class Place(Record):
    byte: int = 0


class Polled(StatefulSource[Payment, Place]):
    """The lines of a file, without the driver knowing of offsets."""

    replayable = True
    max_events = 500

    def __init__(self, path: Path) -> None:
        self.path = path

    def setup_instance(self, instance: int, state: Place | None) -> None:
        self.byte = 0 if state is None else state.byte

    def get_events(self, collector: Any) -> None:
        with self.path.open("rb") as file:
            file.seek(self.byte)
            for _ in range(50):
                line = file.readline()
                if not line.endswith(b"\n"):
                    return
                collector.emit(msgspec.json.decode(line, type=Payment))
                self.byte += len(line)

    def get_state(self) -> Place:
        return Place(self.byte)


def build(promise: str, source: str, dsn: str, url: str, folder: Path) -> Job:
    """Everything is retained, so that in the end the plans tell which epochs were abandoned."""
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
    file = folder / "payments.jsonl"
    read: Any = Polled(file) if source == "polled" else JsonLines(file, Payment, max_events=500)
    echo = job.source(read, id="payments").apply(
        Echo(folder / "repaired"), key="card", id="echo", parallelism=2, on_error="dead-letter"
    )
    echo.sink(SqliteSink(folder / "out.db", "journal"), id="journal", isolation=isolation)
    echo.sink(PostgresSink(dsn, "items"), id="items", isolation=isolation)
    echo.sink(RedisSink(url, "card", "hashes"), id="hashes")
    return job


if "STREAMWORK_SOAK_PROMISE" in os.environ:
    said = [os.environ[f"STREAMWORK_SOAK_{name}"] for name in ("PROMISE", "SOURCE", "DSN", "URL", "FOLDER")]
    soak = build(*said[:4], Path(said[4]))
