"""Rows for a job and for Structured Streaming: random, out of order by less than the lateness, with closing rows behind them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2026, 1, 1, tzinfo=UTC)
CLOSING = START + timedelta(days=2)
"""Rows from here on only advance the watermark."""
DISORDER, LATENESS = 2, 5  # seconds
EPOCHS = 3
NAMES = ("ann", "bob", "cy")
USERS = (*NAMES, None)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("user", pa.string()),
        pa.field("price", pa.float64()),
    ]
)
Row = tuple[Any, ...]


def random_epochs(
    seed: int, rows: int = 60, first: int = 0, users: tuple[str | None, ...] = USERS
) -> list[pa.RecordBatch]:
    """Times are whole seconds, so that many are exactly at an edge. Two epochs follow that close everything: Spark knows the
    watermark of a batch in the next one.
    """
    chance = random.Random(seed)
    found: list[list[Row]] = []
    for epoch in range(EPOCHS):
        mine: list[Row] = []
        for row in range(rows):
            due = DISORDER + epoch * 60 + row * 60 // rows
            at = START + timedelta(seconds=due - chance.randint(0, DISORDER))
            number = first + epoch * rows + row
            mine.append((number, at, chance.choice(users), chance.randrange(400) / 4))
        found.append(mine)
    found += [[(-1, CLOSING + timedelta(days=day), user, 0.0) for user in NAMES] for day in range(2)]
    return [_batch(one) for one in found]


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), SCHEMA, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(values, field.type) for values, field in columns], schema=SCHEMA)


def closed(rows: list[Row]) -> list[Row]:
    """Without the results of closing rows, in a fixed order."""
    kept = [row for row in rows if not any(isinstance(value, datetime) and value >= CLOSING for value in row)]
    return sorted(kept, key=repr)


class Spark:
    """Structured Streaming over folders of files, one file of each in a micro-batch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._session = spark.newSession()
        self._folder = folder
        for name, value in (("shuffle.partitions", "1"), ("session.timeZone", "UTC")):
            self._session.conf.set(f"spark.sql.{name}", value)

    def stream(self, name: str, epochs: list[pa.RecordBatch]) -> Any:
        folder = self._folder / name
        folder.mkdir(parents=True)
        for number, batch in enumerate(epochs):
            path = folder / f"{number:03d}.parquet"
            pq.write_table(pa.Table.from_batches([batch]), path)
            os.utime(path, (number, number))  # Spark reads the oldest file first
        reader = self._session.readStream.schema("id long, at timestamp, user string, price double")
        rows = reader.option("maxFilesPerTrigger", 1).parquet(str(folder))
        return rows.withWatermark("at", f"{LATENESS} seconds")

    def table(self, name: str, table: pa.Table) -> Any:
        path = self._folder / f"{name}.parquet"
        pq.write_table(table, path)
        return self._session.read.parquet(str(path))

    def run(self, query: Any, columns: list[str]) -> list[Row]:
        """All rows that the query emits, in append mode."""
        found: list[Row] = []

        def take(batch: Any, number: int) -> None:
            found.extend(_rows(batch.select(*columns).toArrow()))

        writer = query.writeStream.outputMode("append").foreachBatch(take).trigger(availableNow=True)
        running = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
        running.awaitTermination()
        return found


def _rows(table: pa.Table) -> Iterator[Row]:
    times = pa.timestamp("us", tz="UTC")
    fields = [pa.field(f.name, times) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    return zip(*(column.to_pylist() for column in table.cast(pa.schema(fields)).columns), strict=True)


def rows_of(batches: list[pa.RecordBatch], columns: list[str]) -> list[Row]:
    return [row for batch in batches for row in _rows(pa.Table.from_batches([batch]).select(columns))]


def last_by(rows: list[Row], key: Callable[[Row], Any]) -> list[Row]:
    """The last row of each key: later ones correct earlier ones."""
    return list({key(row): row for row in rows}.values())
