"""Plain PySpark without Streamwork as a peer: a streaming query over a folder that receives one file after another.

The time of an epoch is that of Spark's micro-batch (`triggerExecution`), without the wait for a file to appear.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = "id long, card string, amount double"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = 2


class QueryFailed(Exception):
    """A micro-batch failed, or was not done in time."""


class SparkPeer(ABC):
    """A query over a folder of Parquet files; its rows are discarded."""

    def __init__(self, spark: Any, folder: Path, seconds: float) -> None:
        """An epoch may take at most `seconds`."""
        self._session = spark.newSession()
        self._folder = folder
        self._seconds = seconds
        self._fed = 0
        (folder / "in").mkdir(parents=True)
        self._session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
        self._session.conf.set("spark.sql.streaming.pollingDelay", "100ms")
        self._configure(self._session.conf)
        self._query = self._start()

    def run(self, batch: pa.RecordBatch) -> float:
        """Seconds of one micro-batch."""
        return self._feed(batch)

    def counts(self, batch: pa.RecordBatch) -> Any:
        """Feed a batch with every key, in an epoch that is not measured; returns the output rows as a pandas frame."""
        self._query.stop()
        came: list[Any] = []
        self._query = self._start(lambda rows, number: came.append(rows.toPandas()))
        self._feed(batch)
        return pd.concat(came)

    def close(self) -> None:
        self._query.stop()

    @abstractmethod
    def _configure(self, conf: Any) -> None: ...

    @abstractmethod
    def _aggregated(self, uses: Any) -> Any:
        """Card, count and total of every card in the micro-batch."""

    def _start(self, take: Callable[[Any, int], None] | None = None) -> Any:
        """Without `take`, output is discarded."""
        uses = self._session.readStream.schema(SCHEMA).parquet(str(self._folder / "in"))
        writer = self._aggregated(uses).writeStream.outputMode("update")
        writer = writer.format("noop") if take is None else writer.foreachBatch(take)
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _feed(self, batch: pa.RecordBatch) -> float:
        """Write two files, one per core. Returns the seconds of the micro-batch, or of the two, that read them."""
        making, half = self._folder / "making", batch.num_rows // PARTITIONS + 1
        making.mkdir(exist_ok=True)
        self._fed += 1
        names = [f"{self._fed:06d}-{part}.parquet" for part in range(PARTITIONS)]
        for part, name in enumerate(names):
            pq.write_table(pa.Table.from_batches([batch.slice(part * half, half)]), making / name)
        last = self._query.lastProgress
        before = last["batchId"] if last and last["numInputRows"] else (last["batchId"] - 1 if last else -1)
        for name in names:
            (making / name).rename(self._folder / "in" / name)
        return self._wait(batch.num_rows, before)

    def _wait(self, rows: int, before: int) -> float:
        """Wait until rows have been processed in batches after `before`."""
        until = time.monotonic() + self._seconds
        while True:
            seen = {
                progress["batchId"]: progress
                for progress in self._query.recentProgress
                if progress["batchId"] > before and progress["numInputRows"]
            }
            if sum(one["numInputRows"] for one in seen.values()) >= rows:
                return float(sum(one["durationMs"]["triggerExecution"] for one in seen.values())) / 1000
            if (error := self._query.exception()) is not None:
                raise QueryFailed(str(error).splitlines()[0])
            if time.monotonic() > until:
                raise QueryFailed(f"no epoch of {rows} events in {self._seconds:.0f} s")
            time.sleep(0.02)


class Native(SparkPeer):
    """Spark's own aggregation."""

    def _configure(self, conf: Any) -> None:
        """Use Spark's default state store."""

    def _aggregated(self, uses: Any) -> Any:
        from pyspark.sql import functions as f

        return uses.groupBy("card").agg(f.count("*").alias("count"), f.sum("amount").alias("total"))


class TransformWithState(SparkPeer):
    """transformWithStateInPandas, Spark's API for state in Python."""

    def _configure(self, conf: Any) -> None:
        conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")

    def _aggregated(self, uses: Any) -> Any:
        schema = "card string, count long, total double"
        return uses.groupBy("card").transformWithStateInPandas(_processor(), schema, "Update", "None")


def _processor() -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counting(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._kept = handle.getValueState("kept", "count long, total double")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timer_values: Any) -> Iterator[Any]:  # noqa: N802
            count, total = self._kept.get() if self._kept.exists() else (0, 0.0)
            for frame in rows:
                count += len(frame)
                total += float(frame["amount"].sum())
            self._kept.update((count, total))
            yield pd.DataFrame({"card": [key[0]], "count": [count], "total": [total]})

        def close(self) -> None: ...

    return Counting()
