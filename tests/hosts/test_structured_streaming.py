"""Windows and joins give what Spark's own Structured Streaming gives, where Spark can express the query and no row is late."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamwork import (
    Event,
    EventLog,
    Fixed,
    Job,
    LogSource,
    Session,
    Sliding,
    count,
    max_of,
    mean_of,
    min_of,
    sum_of,
)
from streamwork.bench.epochs import Epochs, KeepingSink
from streamwork.hosts.local import LocalHost
from streamwork.world import RealDisk
from structured_streaming import LATENESS, NAMES, USERS, Spark, closed, last_by, random_epochs, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.spark]
PARTITIONS = 2


class View(Event):
    id: int
    at: datetime
    user: str | None
    price: float


class Sums(Event):
    user: str | None
    window_start: datetime
    window_end: datetime
    views: int
    spent: float
    least: float
    most: float
    mean: float


SUMS = ["user", "window_start", "window_end", "views", "spent", "least", "most", "mean"]
WINDOWS = {
    "fixed": (Fixed("10s"), "window(at, '10 seconds')"),
    "sliding": (Sliding("10s", "5s"), "window(at, '10 seconds', '5 seconds')"),
    "uneven": (Sliding("10s", "4s"), "window(at, '10 seconds', '4 seconds')"),
    "session": (Session("3s"), "session_window(at, '3 seconds')"),
}


class Streamwork:
    """A job on the local host, whose logs get an epoch after another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.job, self.sink = Job("compared", parallelism=PARTITIONS), KeepingSink(folder / "ledger.json")
        self._inputs: dict[str, list[pa.RecordBatch]] = {}

    def stream(self, name: str, epochs: list[pa.RecordBatch]) -> Any:
        """A log without a key has its rows in turn in all partitions: closing rows advance each of them."""
        self._inputs[name] = epochs
        EventLog.create(self._folder / name, View, partitions=PARTITIONS).close()
        return self.job.source(LogSource(self._folder / name, View), id=name, time="at")

    def run(self) -> list[pa.RecordBatch]:
        epochs = Epochs(self.job, self._folder / "root", LocalHost(RealDisk()))
        logs = {name: EventLog(self._folder / name, View) for name in self._inputs}
        for parts in zip(*self._inputs.values(), strict=True):
            for name, batch in zip(logs, parts, strict=True):
                half = -(-batch.num_rows // 2)
                for start in range(0, batch.num_rows, half):
                    logs[name].append(batch.slice(start, half))
                logs[name].sync()
            epochs.run(sum(batch.num_rows for batch in parts))
        epochs.close()
        for log in logs.values():
            log.close()
        return self.sink.batches


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", WINDOWS)
def test_windows(tmp_path: Path, spark: Any, kind: str, seed: int) -> None:
    from pyspark.sql import functions as f

    window, expression = WINDOWS[kind]
    epochs = random_epochs(seed)
    ours = Streamwork(tmp_path)
    windows = ours.stream("views", epochs).window(window, key="user", lateness=f"{LATENESS}s", id="windows")
    aggregates = {"least": min_of("price"), "most": max_of("price"), "mean": mean_of("price")}
    results = windows.aggregate(Sums, views=count(), spent=sum_of("price"), **aggregates)
    results.sink(ours.sink, id="results")
    theirs = Spark(spark, tmp_path / "spark")
    grouped = theirs.stream("views", epochs).groupBy(f.expr(expression).alias("w"), "user")
    query = grouped.agg(
        f.count("*").alias("views"),
        f.sum("price").alias("spent"),
        f.min("price").alias("least"),
        f.max("price").alias("most"),
        f.avg("price").alias("mean"),
    ).selectExpr("user", "w.start as window_start", "w.end as window_end", *SUMS[3:])
    wanted = closed(theirs.run(query, SUMS))
    found = last_by(rows_of(ours.run(), SUMS), key=lambda row: row[:2])
    assert len(wanted) > 20
    assert closed(found) == wanted


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_two_streams_within_a_bound(tmp_path: Path, spark: Any, how: str) -> None:
    from pyspark.sql import functions as f

    # In a full outer join of two streams, and only there, Spark matches a null with a null.
    users = NAMES if how == "full" else USERS
    clicks = random_epochs(3, rows=25, users=users)
    purchases = random_epochs(4, rows=25, first=1_000, users=users)
    ours = Streamwork(tmp_path)
    left, right = ours.stream("clicks", clicks), ours.stream("purchases", purchases)
    joined = left.join(right, key="user", within="6s", lateness=f"{LATENESS}s", how=how, id="joined")
    joined.sink(ours.sink, id="results")
    theirs = Spark(spark, tmp_path / "spark")
    one, other = theirs.stream("clicks", clicks).alias("c"), theirs.stream("purchases", purchases).alias("p")
    bound = "c.user = p.user and c.at between p.at - interval 6 seconds and p.at + interval 6 seconds"
    query = one.join(other, f.expr(bound), {"full": "full_outer"}.get(how, how)).selectExpr(
        "coalesce(c.user, p.user) as user",
        *("c.id", "c.at", "c.price"),
        *("p.id as purchases_id", "p.at as purchases_at", "p.price as purchases_price"),
    )
    columns = ["user", "id", "at", "price", "purchases_id", "purchases_at", "purchases_price"]
    wanted = closed(theirs.run(query, columns))
    lonely = [row for row in wanted if row[1] is None or row[4] is None]
    assert len(wanted) > 50 and bool(lonely) == (how != "inner")
    assert closed(rows_of(ours.run(), columns)) == wanted


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_stream_and_a_static_table(tmp_path: Path, spark: Any, how: str) -> None:
    views = random_epochs(5)
    table = pa.table({"user": ["ann", "ann", "bob", None, "dee"], "city": ["Ulm", "Bern", "Graz", "Rome", None]})
    ours = Streamwork(tmp_path)
    ours.stream("views", views).join(table, key="user", how=how, id="joined").sink(ours.sink, id="results")
    theirs = Spark(spark, tmp_path / "spark")
    query = theirs.stream("views", views).join(theirs.table("cities", table), "user", how)
    columns = ["id", "at", "user", "price", "city"]
    wanted = closed(theirs.run(query, columns))
    assert len(wanted) > 50 and any(row[4] is None for row in wanted) == (how == "left")
    assert closed(rows_of(ours.run(), columns)) == wanted


def test_a_difference_is_found(tmp_path: Path, spark: Any) -> None:
    """The negative control: Spark with a window that is one second longer."""
    from pyspark.sql import functions as f

    epochs = random_epochs(0)
    ours = Streamwork(tmp_path)
    windows = ours.stream("views", epochs).window(Session("3s"), key="user", lateness=f"{LATENESS}s", id="windows")
    windows.aggregate(Edges, views=count()).sink(ours.sink, id="results")
    theirs = Spark(spark, tmp_path / "spark")
    grouped = theirs.stream("views", epochs).groupBy(f.expr("session_window(at, '2 seconds')").alias("w"), "user")
    query = grouped.agg(f.count("*").alias("views")).selectExpr("user", "w.start as window_start", "views")
    columns = ["user", "window_start", "views"]
    assert closed(rows_of(ours.run(), columns)) != closed(theirs.run(query, columns))


class Edges(Event):
    user: str | None
    window_start: datetime
    views: int
