"""``streamwork bench log``: throughput of append and read, and the latency until a reader sees an event.

Every output is checked; a wrong one is an error. Latency is measured in an open loop, from the time at which an event was due, so
that a stall of the writer is not hidden. Writer and reader are two processes.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamwork.components import Event
from streamwork.log import EventLog, LogReader

BATCH = 10_000
BATCHES = 100
CARDS = 10_000
PARTITIONS = 4
REPEATS = 5
FSYNC = "interval"
TAIL_REPEATS = 3
TAIL_EVENTS = 1000
TAIL_INTERVAL = 0.002


class Transaction(Event, frozen=True):
    id: str
    card: str
    merchant: int
    amount: float
    at: datetime


class Due(Event, frozen=True):
    at_ns: int


def run(folder: Path | None = None) -> dict[str, Any]:
    """Measure and return all figures. Raises AssertionError if an output is wrong."""
    with tempfile.TemporaryDirectory(prefix="bench-log-", dir=folder) as name:
        scratch = Path(name)
        batches = list(_batches())
        _append(scratch / "warm", batches[:10])
        append, read, cpu = [], [], []
        for repeat in range(REPEATS):  # interleaved, so that a noisy minute hits both
            path = scratch / f"log-{repeat}"
            started = time.process_time()
            append.append(_append(path, batches))
            cpu.append((time.process_time() - started) / (BATCH * BATCHES) * 1e6)
            read.append(_read(path, batches))
            shutil.rmtree(path)
        tails = [_tail(scratch / f"tail-{repeat}") for repeat in range(TAIL_REPEATS)]
    return {
        "append_events_per_s": round(statistics.median(append)),
        "read_events_per_s": round(statistics.median(read)),
        "tail_p50_ms": round(statistics.median(t["p50"] for t in tails), 3),
        "tail_p99_ms": round(statistics.median(t["p99"] for t in tails), 3),
        "append_cpu_s_per_million_events": round(statistics.median(cpu), 3),
        "append": {"repeats": [round(v) for v in append], "spread": _spread(append)},
        "read": {"repeats": [round(v) for v in read], "spread": _spread(read)},
        "tail": {"repeats": tails, "events": TAIL_EVENTS, "interval_ms": TAIL_INTERVAL * 1000},
        "settings": {
            "events_per_batch": BATCH,
            "batches": BATCHES,
            "columns": len(Transaction.__struct_fields__),
            "bytes_per_event": round(batches[0].nbytes / BATCH, 1),
            "distinct_keys": CARDS,
            "partitions": PARTITIONS,
            "fsync": FSYNC,
        },
    }


def _spread(values: list[float]) -> dict[str, int]:
    return {"min": round(min(values)), "median": round(statistics.median(values)), "max": round(max(values))}


def _batches() -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(7)
    for batch in range(BATCHES):
        first = batch * BATCH
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([f"t{number:09d}" for number in range(first, first + BATCH)]),
                pa.array([f"card-{number}" for number in rng.integers(0, CARDS, BATCH).tolist()]),
                pa.array(rng.integers(0, 5000, BATCH)),
                pa.array(rng.integers(0, 100_000, BATCH) / 4),  # quarters: their sum is exact in any order
                pa.array(np.arange(first, first + BATCH)).cast(pa.timestamp("us", tz="UTC")),
            ],
            names=list(Transaction.__struct_fields__),
        )


def _append(path: Path, batches: list[pa.RecordBatch]) -> float:
    """Events per second, from the first append until the last event is synced and the log is closed."""
    log = EventLog.create(path, Transaction, key="card", partitions=PARTITIONS, fsync=FSYNC)
    started = time.perf_counter()
    acknowledged = sum(len(offsets) for batch in batches for offsets in log.append(batch).values())
    log.close()
    elapsed = time.perf_counter() - started
    assert acknowledged == BATCH * len(batches), acknowledged
    return acknowledged / elapsed


def _read(path: Path, batches: list[pa.RecordBatch]) -> float:
    """Events per second of a reader that has seen nothing yet, each batch checked against its CRC."""
    started = time.perf_counter()
    reader = LogReader(path, Transaction)
    read = [batch for partition, end in reader.ends().items() for batch in reader.read(partition, 0, end)]
    count = sum(batch.num_rows for batch in read)
    elapsed = time.perf_counter() - started
    assert count == BATCH * len(batches), count
    found, given = pa.Table.from_batches(read), pa.Table.from_batches(batches)
    assert pc.sum(found["amount"]) == pc.sum(given["amount"])
    assert found["id"].to_pylist() != given["id"].to_pylist()  # the keys have spread them over the partitions
    assert pc.count_distinct(found["id"]) == pc.count_distinct(given["id"])
    return float(count / elapsed)


def _tail(path: Path) -> dict[str, float]:
    """Milliseconds from the time at which an event was due until another process has read it."""
    log = EventLog.create(path, Due, fsync=FSYNC)
    with subprocess.Popen(
        [sys.executable, "-m", __name__, str(path), str(TAIL_EVENTS)], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        begin = time.time_ns() + 100_000_000
        for number in range(TAIL_EVENTS):
            due = begin + int(number * TAIL_INTERVAL * 1e9)
            if (left := due - time.time_ns()) > 0:
                time.sleep(left / 1e9)
            log.append(Due(due))
        latencies = msgspec.json.decode(other.stdout.read(), type=list[float])
    log.close()
    assert len(latencies) == TAIL_EVENTS, len(latencies)
    assert min(latencies) > 0, "seen before it was due"
    p50, p99, p999 = np.percentile(latencies, [50, 99, 99.9]).tolist()
    return {"p50": round(p50, 3), "p99": round(p99, 3), "p99.9": round(p999, 3), "max": round(max(latencies), 3)}


def _follow(path: str, count: int) -> None:
    """The other process: read events as they arrive, then print the latency of each, in milliseconds."""
    log = EventLog(path, Due)
    log.pull()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    latencies: list[float] = []
    while len(latencies) < count:
        events = log.pull(timeout=5)
        now = time.time_ns()
        assert events, "nothing came for five seconds"
        latencies += [(now - event.at_ns) / 1e6 for event in events]
    sys.stdout.write(msgspec.json.encode(latencies).decode())


if __name__ == "__main__":
    _follow(sys.argv[1], int(sys.argv[2]))
