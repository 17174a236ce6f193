"""Latency from Kafka into Kafka, open loop: against throughput (the variant `rates`), and against the size of a batch (`batches`).

Latency is the time at which a consumer of committed records could read the right count of a window, minus the time at which the
last event of the window was due. Events are sent at a fixed rate, whether a system keeps up or not.

One run of a system at one rate:
    1  the system is started, and some seconds of events are sent: what it had to start for is not measured
    2  when all windows of these are right, the next events become due, for the measured seconds
    3  the run ends when all windows of these are right; a system that takes too long for that has fallen behind
`rates` are tried in rising order; those beyond the first at which a system falls behind are not.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streamwork.bench.contest import Note
from streamwork.bench.peers import Unavailable
from streamwork.bench.ysb import topics
from streamwork.bench.ysb.arrivals import Arrivals
from streamwork.bench.ysb.events import BEGIN, Stream
from streamwork.bench.ysb.oracle import Counts, Oracle
from streamwork.bench.ysb.program import Program
from streamwork.bench.ysb.systems import Task, command_of, topics_of
from streamwork.bench.ysb.topics import Senders
from streamwork.errors import JobFailed

PARTITIONS = 2
LEAD_SECONDS = 3.0
"""In which the generator starts."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    rates: tuple[int, ...] = (10_000, 50_000, 100_000, 200_000, 400_000, 800_000)
    every_ms: tuple[int, ...] = (1_000,)
    """Checkpoint intervals; for systems that compute in batches, a batch is what comes in one."""
    systems: tuple[str, ...] = ("live", "microbatch", "spark", "flink")
    warm_windows: int = 10
    windows: int = 20
    window_ms: int = 1_000
    campaigns: int = 100
    start_seconds: float = 120.0
    behind_seconds: float = 10.0
    """A system that needs longer than this after the last event has fallen behind."""


RATES = Sizes()
BATCHES = msgspec.structs.replace(RATES, rates=(50_000,), every_ms=(100, 300, 1_000, 3_000))
QUICK = Sizes(rates=(1_000, 2_000), systems=("local",), warm_windows=2, windows=3, campaigns=10, behind_seconds=60.0)


def run(
    servers: str, folder: Path | None = None, sizes: Sizes = RATES, note: Note = lambda line: None
) -> dict[str, Any]:
    """Measure and return all figures: by system, the rows of its runs."""
    found: dict[str, list[dict[str, Any]]] = {}
    skipped: dict[str, str] = {}
    for system in sizes.systems:
        rows = found[system] = []
        for every in sizes.every_ms:
            for rate in sizes.rates:
                row: dict[str, Any] = {"rate": rate, "every_ms": every, "events_per_batch": rate * every // 1_000}
                with tempfile.TemporaryDirectory(prefix="bench-ysb-", dir=folder, ignore_cleanup_errors=True) as name:
                    try:
                        row |= measured(system, servers, rate, every, Path(name), sizes)
                    except Unavailable as why:
                        skipped[system] = str(why)
                        note(f"{system} is left out: {why}")
                        break
                    except JobFailed as why:
                        row |= {"behind": True, "why": str(why)}
                rows.append(row)
                p99 = row.get("p99_ms")
                note(f"{system}, {rate:,} events/s, {every} ms: " + ("behind" if p99 is None else f"p99 {p99:,.0f} ms"))
                if row["behind"]:
                    break
    return {
        "systems": {name: rows for name, rows in found.items() if rows},
        "skipped": skipped,
        "settings": {**msgspec.to_builtins(sizes), "format": "seven-field JSON", "partitions": PARTITIONS},
    }


def measured(system: str, servers: str, rate: int, every_ms: int, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """One run. Raises JobFailed if the system has fallen behind, or its results are wrong."""
    stream = Stream(PARTITIONS, sizes.campaigns, PARTITIONS * 1_000_000 // rate)
    each_window = sizes.window_ms * 1_000 // stream.step * PARTITIONS
    warm, last = sizes.warm_windows * each_window, (sizes.warm_windows + sizes.windows) * each_window
    closing = max(1, each_window // 4)  # so that the last window closes
    oracle = Oracle(stream, sizes.window_ms * 1_000)
    oracle.read_up_to(dict.fromkeys(range(PARTITIONS), last // PARTITIONS))
    wanted = oracle.counts()
    topic = f"ysb-rates-{time.time_ns()}"
    output = f"{topic}-results"
    topics.create(servers, topic, PARTITIONS)
    for one in topics_of(system, output):
        topics.create(servers, one, 1)
    task = Task(
        servers=servers, topic=topic, output=output, stream=stream, window_ms=sizes.window_ms, every_ms=every_ms
    )
    command, environment = command_of(system, task, folder)
    try:
        with (
            Arrivals(servers, topics_of(system, output), wanted) as arrivals,
            Program(folder, command, environment) as program,
        ):
            with Senders(servers, topic, stream, warm) as senders:  # 1
                senders.result()
            before = [one for one in wanted if one[1] < BEGIN + (sizes.warm_windows - 1) * sizes.window_ms * 1_000]
            arrivals.wait(before, sizes.start_seconds, program.look)
            began = time.time() + LEAD_SECONDS  # 2
            with Senders(servers, topic, stream, last + closing, warm, began) as senders:
                seconds = LEAD_SECONDS + (last - warm + closing) / rate
                arrivals.wait(wanted, seconds + sizes.behind_seconds, program.look)  # 3
                sent = senders.result()
            found = figures_of(arrivals.right, wanted, began, sizes)
        return {**found, "behind": False, "generator_behind_ms": round(sent.behind * 1_000, 1)}
    finally:
        topics.delete(servers, topic, *topics_of(system, output))
        shutil.rmtree(folder, ignore_errors=True)


def figures_of(right: dict[tuple[int, int], float], wanted: Counts, began: float, sizes: Sizes) -> dict[str, Any]:
    """The latencies of the measured windows."""
    first = BEGIN + sizes.warm_windows * sizes.window_ms * 1_000
    ends = {one: (one[1] - first) / 1e6 + sizes.window_ms / 1_000 for one in wanted if one[1] >= first}
    latencies = [(right[one] - began - end) * 1_000 for one, end in ends.items()]
    p50, p99 = np.percentile(latencies, [50, 99])
    return {
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "max_ms": round(max(latencies), 1),
        "results": len(latencies),
    }
