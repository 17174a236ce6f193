"""Jobs that join clicks with purchases, and how their results compare with DuckDB's."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from operators.join_oracle import Click, Oracle, Purchase, Row, seconds
from streamwork import CallableSink, Event, Fixed, Job, ListSource, OffsetSource, ParquetSink, Sink, count
from streamwork.components.columns import to_structs

Source = OffsetSource[Any]


def lists() -> tuple[Source, Source]:
    """Sources that the simulator replaces."""
    return ListSource([], Click), ListSource([], Purchase)


def two_streams(
    how: str,
    within: int,
    lateness: int,
    parallelism: int = 1,
    sources: tuple[Source, Source] | None = None,
    out: Path | None = None,
) -> Job:
    job = Job("attribution", parallelism=parallelism, checkpoint_every=0)
    left, right = sources or lists()
    clicks, purchases = job.source(left, id="left", time="at"), job.source(right, id="right", time="at")
    joined = clicks.join(purchases, key="user", within=within, lateness=lateness, how=how, id="attribution")
    joined.sink(_sink(out, "joined"), id="joined")
    joined.channel("late").sink(_sink(out, "late"), id="late")
    joined.channel("late-right").sink(_sink(out, "late-right"), id="late-right")
    return job


def with_table(
    how: str,
    history: int,
    lateness: int,
    parallelism: int = 1,
    sources: tuple[Source, Source] | None = None,
    out: Path | None = None,
) -> Job:
    """`lateness` is that of the table."""
    job = Job("priced", parallelism=parallelism, checkpoint_every=0)
    left, right = sources or lists()
    clicks, purchases = job.source(left, id="left", time="at"), job.source(right, id="right", time="at")
    table = purchases.table(key="user", history=history, lateness=lateness, id="quotes")
    joined = clicks.join(table, key="user", as_of="at", how=how, id="priced")
    joined.sink(_sink(out, "joined"), id="joined")
    joined.channel("late").sink(_sink(out, "late"), id="late")
    table.late.sink(_sink(out, "late-right"), id="late-right")
    return job


class Bought(Event):
    user: str | None
    window_end: datetime
    purchases: int


def with_windows(how: str, history: int, parallelism: int = 1) -> Job:
    """Clicks with the number of purchases in the last ten seconds that are over."""
    job = Job("windows", parallelism=parallelism, checkpoint_every=0)
    left, right = lists()
    clicks, purchases = job.source(left, id="left", time="at"), job.source(right, id="right", time="at")
    bought = purchases.window(Fixed("10s"), key="user", id="per-user").aggregate(Bought, purchases=count())
    table = bought.table(key="user", time="window_end", history=history, id="bought")
    clicks.join(table, key="user", how=how, id="joined").sink(_sink(None, "out"), id="out")
    return job


def with_itself(within: int, parallelism: int = 1) -> Job:
    job = Job("itself", parallelism=parallelism, checkpoint_every=0)
    clicks = job.source(ListSource([], Click), id="left", time="at")
    clicks.join(clicks, key="user", within=within, id="pairs").sink(_sink(None, "out"), id="out")
    return job


def with_two_tables(parallelism: int = 1) -> Job:
    """Clicks with purchases, once as they are valid at that time and once as of a time before it."""
    job = Job("tables", parallelism=parallelism, checkpoint_every=0)
    left, right = lists()
    clicks, purchases = job.source(left, id="left", time="at"), job.source(right, id="right", time="at")
    large = purchases.filter(_is_large)
    tables = purchases.table(key="user", history=9, id="all"), large.table(key="user", history=9, id="large")
    clicks.join(*tables, key="user", how="left", id="both").sink(_sink(None, "out"), id="out")
    return job


def on_arrival(left: Source, right: Source, out: Path) -> Job:
    job = Job("arrival", checkpoint_every=0)
    clicks, purchases = job.source(left, id="left", time="at"), job.source(right, id="right")
    joined = clicks.join(purchases.table(key="user", id="newest"), key="user", how="left", id="joined")
    joined.sink(_sink(out, "out"), id="out")
    return job


def _is_large(purchase: Purchase) -> bool:
    return (purchase.price or 0) > 8


def random_rows(seed: int, count: int, partitions: int, keys: Sequence[str | None], disorder: int) -> list[Row]:
    """Both inputs, out of order by up to `disorder` seconds, with ties, in partitions in turn."""
    chosen = random.Random(seed)
    numbers = {"left": 0, "right": 0}
    rows = []
    for number in range(count):
        side = chosen.choice(("left", "right"))
        time = max(0, number // 4 - chosen.choice((0, 0, 0, chosen.randint(0, disorder))))
        key = chosen.choice(keys)
        value = time + len(key or "") if side == "right" else number  # equal versions of one key and time are equal
        rows.append(Row(side, numbers[side] % partitions, key, time, value))
        numbers[side] += 1
    return rows


def inputs(rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {side: [row.event for row in rows if row.input == side] for side in ("left", "right")}


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def found(outputs: Mapping[str, Sequence[Any]], right: str) -> dict[str, list[tuple[Any, ...]]]:
    """What the sinks of a job have; `right` is the name of the right side, which stands before its time."""
    return {
        "joined": ordered(
            (e.user, seconds(e.at), e.page, seconds(getattr(e, f"{right}_at")), e.price) for e in outputs["joined"]
        ),
        "late": ordered((e.user, seconds(e.at), e.page, e.late_by) for e in outputs["late"]),
        "late-right": ordered((e.user, seconds(e.at), e.late_by) for e in outputs["late-right"]),
    }


def expected_within(oracle: Oracle, how: str, within: int, lateness: int) -> dict[str, list[tuple[Any, ...]]]:
    chance = within + lateness
    return {
        "joined": _priced(oracle.within(how, within, lateness)),
        "late": ordered(oracle.late("left", chance)),
        "late-right": ordered((k, t, by) for k, t, _, by in oracle.late("right", chance)),
    }


def expected_as_of(oracle: Oracle, how: str, history: int, lateness: int) -> dict[str, list[tuple[Any, ...]]]:
    return {
        "joined": _priced(oracle.as_of(how, history, lateness)),
        "late": ordered(oracle.late("left", history, inclusive=False)),
        "late-right": ordered((k, t, by) for k, t, _, by in oracle.late("right", lateness, inclusive=False)),
    }


def _priced(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return ordered((*row[:4], None if row[4] is None or row[4] % 5 == 0 else float(row[4])) for row in rows)


def _sink(out: Path | None, name: str) -> Sink[Any]:
    return CallableSink(print) if out is None else ParquetSink(out / name)


def written(job: Job, out: Path) -> dict[str, list[Any]]:
    """The events in the sinks of a job, each a folder of Parquet files."""
    found: dict[str, list[Any]] = {}
    for sink in job.graph().sinks:
        files = sorted((out / sink.id).glob("epoch=*/*.parquet"))
        assert sink.takes is not None
        found[sink.id] = [event for file in files for event in _events(sink.takes, file)]
    return found


def _events(kind: type[Any], file: Path) -> list[Any]:
    return [event for batch in pq.ParquetFile(file).iter_batches() for event in to_structs(kind, batch)]
