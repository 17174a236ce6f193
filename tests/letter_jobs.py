"""Jobs with events that somebody cannot do, importable by Spark's workers."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from sample import Payment, Seen, Summing, Sums
from streamwork import Job, KeyedOperator, ListSource, SqliteSink

CARDS = 3
POISON = {4, 17, 23}
EVENTS = [Payment(f"card-{i % CARDS}", i) for i in range(30)]
PER_EPOCH = 10


class Stumbling(Summing):
    """Raises at an amount of sixty, unless a file is there, which it makes then."""

    def __init__(self, stumbled: Path) -> None:
        self.stumbled = stumbled

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        if event.amount == 60 and not self.stumbled.exists():
            self.stumbled.touch()
            raise ValueError("stumbled")
        super().apply(event, state, collector)


class Squeamish(KeyedOperator[Payment, Sums, Seen]):
    """Cannot do poison, until it is mended: that is, until a file is there."""

    def __init__(self, mended: Path) -> None:
        self.mended = mended

    def apply(self, event: Payment, state: Sums, collector: Any) -> None:
        state.number += 1
        state.total += event.amount
        collector.emit(Seen(event.card, event.amount, state.total))
        if event.amount in POISON and not self.mended.exists():
            raise ValueError(f"cannot do {event.amount}")


def squeamish_job(folder: Path, on_error: str | None = "dead-letter", **settings: Any) -> Job:
    """In the sink, `number` is the amount, by which each event is known, and `total` what the state says."""
    job = Job("squeamish", checkpoint_every=0, **settings)
    source = job.source(ListSource(EVENTS, Payment, max_events=PER_EPOCH), id="payments", parallelism=1)
    done = source.apply(Squeamish(folder / "mended"), key="card", id="squeamish", on_error=on_error)  # type: ignore[arg-type]
    done.sink(SqliteSink(folder / "out.db", "out"), id="out", on_error="dead-letter")
    return job


def check(folder: Path, without: set[int] | frozenset[int] = frozenset()) -> None:
    """The sink has each event exactly once, and the state has each event exactly once."""
    with closing(sqlite3.connect(folder / "out.db")) as db:
        rows = db.execute("SELECT card, number, total FROM out").fetchall()
    wanted = [event for event in EVENTS if event.amount not in without]
    assert Counter(amount for _, amount, _ in rows) == Counter(event.amount for event in wanted), "ECHO"
    for number in range(CARDS):
        mine = [total for card, _, total in rows if card == f"card-{number}"]
        assert max(mine) == sum(e.amount for e in wanted if e.card == f"card-{number}"), "STATE"
