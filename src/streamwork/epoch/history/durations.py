"""How long the steps of committed epochs took, and each sink's part of the commit, as histograms since the history was created.

They are a table of ``history.sqlite`` that is never trimmed: the durations of single epochs are (`epoch.history.tables`).
"""

from __future__ import annotations

import math
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from streamwork.epoch.history.values import Row

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, math.inf)
"""The upper bounds of the buckets, in seconds."""
CREATE = """CREATE TABLE IF NOT EXISTS durations (step TEXT, sink TEXT, "within" REAL, epochs INTEGER, seconds REAL,
    PRIMARY KEY (step, sink, "within")) WITHOUT ROWID"""
QUERY = 'SELECT step, sink, "within", epochs, seconds FROM durations ORDER BY step, sink, "within"'
COMMIT = "commit"


class Durations(msgspec.Struct, frozen=True):
    """A histogram: of a step, or, with `sink`, of the part of the commit that one sink took."""

    step: str
    sink: str
    buckets: tuple[int, ...]  # by bound: the epochs that took at most so long
    seconds: float  # in all

    @property
    def epochs(self) -> int:
        return self.buckets[-1]


def add_durations(db: sqlite3.Connection, row: Row) -> None:
    """Add one committed epoch."""
    steps = {(step, ""): took for step, took in msgspec.structs.asdict(row.seconds).items() if took is not None}
    sinks = {(COMMIT, sink): took for sink, took in row.sinks.items()}
    insert = "INSERT INTO durations VALUES (?, ?, ?, 1, ?) ON CONFLICT DO UPDATE SET epochs = epochs + 1"
    db.executemany(
        f"{insert}, seconds = seconds + excluded.seconds",
        [(*key, BOUNDS[bisect_left(BOUNDS, took)], took) for key, took in (steps | sinks).items()],
    )


def durations(rows: Sequence[tuple[object, ...]]) -> Iterator[Durations]:
    """The histograms in the rows of `QUERY`. A bound of an earlier version counts for the next one that is known."""
    found: dict[tuple[str, str], dict[float, tuple[int, float]]] = {}
    for step, sink, within, epochs, seconds in msgspec.convert(rows, list[tuple[str, str, float, int, float]]):
        found.setdefault((step, sink), {})[within] = (epochs, seconds)
    for (step, sink), known in found.items():
        yield Durations(step, sink, _cumulated(known), sum(seconds for _, seconds in known.values()))


def _cumulated(known: Mapping[float, tuple[int, float]]) -> tuple[int, ...]:
    counts = [0] * len(BOUNDS)
    for within, (epochs, _) in known.items():
        counts[bisect_left(BOUNDS, within)] += epochs
    return tuple(accumulate(counts))
