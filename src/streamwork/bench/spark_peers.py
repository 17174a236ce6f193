"""Plain PySpark without Streamwork as a peer: a streaming query over folders that receive one file after another.

The time of an epoch is that of Spark's micro-batch (`triggerExecution`), without the wait for a file to appear.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = 2


def use_rocksdb(conf: Any) -> None:
    conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")


class QueryFailed(Exception):
    """A micro-batch failed, or was not done in time."""


class SparkPeer(ABC):
    """A query over folders of Parquet files, one for each input."""

    inputs: ClassVar[dict[str, str]]
    """Name -> schema."""
    output_mode: ClassVar[str] = "update"

    def __init__(self, spark: Any, folder: Path, seconds: float) -> None:
        """An epoch may take at most `seconds`."""
        self._session = spark.newSession()
        self._folder = folder
        self._seconds = seconds
        self._fed = 0
        for name in self.inputs:
            (folder / "in" / name).mkdir(parents=True)
        self._session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
        self._session.conf.set("spark.sql.streaming.pollingDelay", "100ms")
        self._configure(self._session.conf)
        self._query = self._start()

    def run(self, **batches: pa.RecordBatch) -> float:
        """Feed the inputs, by name. Returns the seconds of one micro-batch."""
        return self._feed(batches)

    def close(self) -> None:
        self._query.stop()

    @abstractmethod
    def _configure(self, conf: Any) -> None: ...

    @abstractmethod
    def _results(self, inputs: dict[str, Any]) -> Any:
        """The output of the query, from the inputs by name."""

    def _start(self, take: Callable[[Any, int], None] | None = None) -> Any:
        """Without `take`, output is discarded."""
        inputs = {
            name: self._session.readStream.schema(schema).parquet(str(self._folder / "in" / name))
            for name, schema in self.inputs.items()
        }
        writer = self._results(inputs).writeStream.outputMode(self.output_mode)
        writer = writer.format("noop") if take is None else writer.foreachBatch(take)
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _feed(self, batches: dict[str, pa.RecordBatch]) -> float:
        """Write two files per input, one per core. Returns the seconds of the micro-batches that read them: mostly one."""
        making = self._folder / "making"
        making.mkdir(exist_ok=True)
        self._fed += 1
        files = []
        for name, batch in batches.items():
            half = -(-batch.num_rows // PARTITIONS)
            for part in range(PARTITIONS):
                path = making / f"{name}-{self._fed:06d}-{part}.parquet"
                pq.write_table(pa.Table.from_batches([batch.slice(part * half, half)]), path)
                files.append((path, self._folder / "in" / name / path.name))
        last = self._query.lastProgress
        before = last["batchId"] if last and last["numInputRows"] else (last["batchId"] - 1 if last else -1)
        for path, target in files:
            path.rename(target)
        return self._wait(sum(batch.num_rows for batch in batches.values()), before)

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
                self._took_batches(seen.values())
                return float(sum(one["durationMs"]["triggerExecution"] for one in seen.values())) / 1000
            if (error := self._query.exception()) is not None:
                raise QueryFailed(str(error).splitlines()[0])
            if time.monotonic() > until:
                raise QueryFailed(f"no epoch of {rows} events in {self._seconds:.0f} s")
            time.sleep(0.02)

    def _took_batches(self, progress: Iterable[Any]) -> None:
        """Micro-batches with input have ended. The default needs nothing of them."""
        return


class CountingPeer(SparkPeer):
    """Card, count and total of every card in the micro-batch."""

    inputs: ClassVar[dict[str, str]] = {"uses": "id long, card string, amount double"}

    def counts(self, batch: pa.RecordBatch) -> Any:
        """Feed a batch with every key, in an epoch that is not measured; returns the output rows as a pandas frame."""
        self._query.stop()
        came: list[Any] = []
        self._query = self._start(lambda rows, number: came.append(rows.toPandas()))
        self._feed({"uses": batch})
        return pd.concat(came)


class Native(CountingPeer):
    """Spark's own aggregation."""

    def _configure(self, conf: Any) -> None:
        """Use Spark's default state store."""

    def _results(self, inputs: dict[str, Any]) -> Any:
        from pyspark.sql import functions as f

        return inputs["uses"].groupBy("card").agg(f.count("*").alias("count"), f.sum("amount").alias("total"))


class TransformWithState(CountingPeer):
    """transformWithStateInPandas, Spark's API for state in Python."""

    def _configure(self, conf: Any) -> None:
        use_rocksdb(conf)

    def _results(self, inputs: dict[str, Any]) -> Any:
        schema = "card string, count long, total double"
        return inputs["uses"].groupBy("card").transformWithStateInPandas(_processor(), schema, "Update", "None")


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
