"""Windows and joins in plain Structured Streaming, with RocksDB, in append mode.

Each micro-batch has as many rows as an epoch of the others; batches without rows, which Spark adds to emit results earlier, are
switched off, so that they cost nothing. Output is discarded; its number of rows and a checksum are computed on the way, by
Spark (`observe`), and compared at the end.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from streamwork.bench.epochs import Array
from streamwork.bench.join_oracle import Pairs
from streamwork.bench.spark_peers import SparkPeer, use_rocksdb
from streamwork.bench.window_oracle import WindowResults

CHECK = "check"
SMALL = 1 << 19
"""Factors of a checksum are below this, so that the sum of their products is exact."""


class TimedSparkPeer(SparkPeer):
    """A query whose results depend on event time."""

    output_mode: ClassVar[str] = "append"
    delay: ClassVar[str] = "5 seconds"

    def __init__(self, *args: Any, **options: Any) -> None:
        self.checked: tuple[int, int] = (0, 0)
        """(rows, checksum) of the output so far"""
        super().__init__(*args, **options)

    def _configure(self, conf: Any) -> None:
        use_rocksdb(conf)
        conf.set("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")  # faster, as its manual says
        conf.set("spark.sql.session.timeZone", "UTC")
        conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")

    def _results(self, inputs: dict[str, Any]) -> Any:
        from pyspark.sql import functions as f

        watched = {name: rows.withWatermark("at", self.delay) for name, rows in inputs.items()}
        found = self._query_of(watched)
        one, other = self._factors()
        return found.observe(CHECK, f.count("*").alias("rows"), f.sum(f.expr(f"({one}) * ({other})")).alias("sum"))

    def _query_of(self, inputs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def _factors(self) -> tuple[str, str]:
        """The two factors of each output row in the checksum."""
        raise NotImplementedError

    def _took_batches(self, progress: Iterable[Any]) -> None:
        for one in progress:
            check = one.observedMetrics[CHECK]
            rows, found = self.checked
            self.checked = rows + check["rows"], found + (check["sum"] or 0)


class SparkWindows(TimedSparkPeer):
    """Count and sum of prices per user and window. `window` is an expression that makes a window of column `at`."""

    inputs: ClassVar[dict[str, str]] = {"views": "id long, at timestamp, user string, price double"}
    window: ClassVar[str]

    def _query_of(self, inputs: dict[str, Any]) -> Any:
        from pyspark.sql import functions as f

        grouped = inputs["views"].groupBy(f.expr(self.window).alias("window"), "user")
        return grouped.agg(f.count("*").alias("views"), f.sum("price").alias("spent"))

    def _factors(self) -> tuple[str, str]:
        return (
            f"(crc32(user) + unix_millis(window.start)) % {SMALL}",
            f"(views * 1009 + cast(spent * 4 as long) * 31 + unix_millis(window.end)) % {SMALL}",
        )


class SparkFixed(SparkWindows):
    window: ClassVar[str] = "window(at, '10 seconds')"


class SparkSliding(SparkWindows):
    window: ClassVar[str] = "window(at, '10 seconds', '5 seconds')"


class SparkSessions(SparkWindows):
    window: ClassVar[str] = "session_window(at, '30 seconds')"

    def _configure(self, conf: Any) -> None:
        super()._configure(conf)
        conf.set("spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition", "true")  # faster here


class SparkJoin(TimedSparkPeer):
    """Clicks and purchases of the same user, at most 30 seconds apart."""

    inputs: ClassVar[dict[str, str]] = {
        "clicks": "click long, at timestamp, user string, price double",
        "purchases": "purchase long, at timestamp, user string, amount double",
    }

    def _query_of(self, inputs: dict[str, Any]) -> Any:
        from pyspark.sql import functions as f

        bound = f.expr("c.user = p.user and c.at between p.at - interval 30 seconds and p.at + interval 30 seconds")
        return inputs["clicks"].alias("c").join(inputs["purchases"].alias("p"), bound)

    def _factors(self) -> tuple[str, str]:
        return f"click % {SMALL}", f"purchase % {SMALL}"


def windows_checksum(found: WindowResults, names: list[str]) -> tuple[int, int]:
    """What `SparkWindows` must have `checked`."""
    crcs = np.array([zlib.crc32(name.encode()) for name in names])[found.keys]
    one = (crcs + found.starts // 1000) % SMALL
    other = (found.views * 1009 + found.quarters * 31 + found.ends // 1000) % SMALL
    return _checksum(one, other)


def pairs_checksum(found: Pairs) -> tuple[int, int]:
    """What `SparkJoin` must have `checked`."""
    return _checksum(found.left % SMALL, found.right % SMALL)


def _checksum(one: Array, other: Array) -> tuple[int, int]:
    return len(one), int((one * other).sum())
