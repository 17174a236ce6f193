"""The independent count: the transactions in the log, the decisions in the result store, the planted truth, the rows of usage."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from streamwork.cli.network.reading import Totals, rows
from streamwork.cli.network.system import Places
from streamwork.log import LogReader


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a verdict needs, read when nothing runs."""

    logged: tuple[str, ...]  # transactions of the log
    verdicts: dict[str, bool]  # the result store: transaction -> judged fraudulent
    rows: tuple[tuple[str, str], ...]  # of system usage: transaction, and the verdict that it saw
    totals: Totals  # the last numbers of system usage
    planted: frozenset[str]  # transactions that are fraud, also those that were not sent


def read_counts(places: Places) -> Counts:
    log: LogReader[Any] = LogReader(places.log)
    ends = log.ends()
    logged = tuple(
        id for partition, end in ends.items() for batch in log.read(partition, 0, end) for id in batch["id"].to_pylist()
    )
    truth = places.truth.read_bytes().splitlines() if places.truth.exists() else []
    last = rows(places.usage, "SELECT transactions, fraudulent, unknown FROM usage ORDER BY rowid DESC LIMIT 1")
    return Counts(
        logged=logged,
        verdicts={id: bool(f) for id, f in rows(places.decisions, 'SELECT "transaction", fraud FROM decisions')},
        rows=tuple((id, verdict) for id, verdict in rows(places.usage, 'SELECT "transaction", verdict FROM usage')),
        totals=Totals(*last[0]) if last else Totals(),
        planted=frozenset(msgspec.json.decode(line)["transaction"] for line in truth),
    )


def repeated_rows(places: Places) -> int:
    """Rows of system usage beyond the first of each transaction."""
    found = rows(places.usage, 'SELECT count(*) - count(DISTINCT "transaction") FROM usage')
    return int(found[0][0]) if found else 0


def of_verdicts(counts: Counts) -> Totals:
    """The numbers that the rows of system usage add up to."""
    seen = Counter(verdict for _, verdict in counts.rows)
    return Totals(len(counts.rows), seen["fraud"], seen["unknown"])
