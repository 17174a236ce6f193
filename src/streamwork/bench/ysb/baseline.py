"""The variant `baseline`: how it was before. No state in the engine, campaigns and counts in Redis, no fault tolerance.

Compared with the variant `state` on the same topic, in turn. Its speed is that between the moments at which a quarter of the views,
and all of them, were in Redis. All counts in Redis are compared with the oracle.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import streamwork
from streamwork.bench.contest import Note
from streamwork.bench.spread import spread
from streamwork.bench.ysb import baseline_job, state, topics
from streamwork.bench.ysb.events import ADS_PER_CAMPAIGN, Stream
from streamwork.bench.ysb.oracle import Counts, Oracle, check
from streamwork.bench.ysb.program import Program
from streamwork.bench.ysb.running import LOOK_SECONDS
from streamwork.bench.ysb.state import WINDOW_MS
from streamwork.bench.ysb.systems import Task
from streamwork.bench.ysb.topics import Senders
from streamwork.errors import JobFailed


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    events: int = 15_000_000
    repeats: int = 5
    mode: str = "live"
    patience: float = 300.0
    most: int = 1_000_000
    stream: Stream = Stream(step=80)


FULL = Sizes()
QUICK = Sizes(events=100_000, repeats=1, mode="local", most=10_000, stream=Stream(campaigns=20, step=2_000))


def run(
    servers: str, redis_url: str, folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None
) -> dict[str, Any]:
    """Measure and return all figures. The Redis database is emptied."""
    topic = f"ysb-ads-{time.time_ns()}"
    topics.create(servers, topic, sizes.stream.partitions)
    found: dict[str, list[dict[str, float]]] = {"baseline": [], "state": []}
    try:
        note(f"sending {sizes.events:,} events to the broker")
        with Senders(servers, topic, sizes.stream, sizes.events) as senders:
            senders.result()
        oracle = Oracle(sizes.stream)
        oracle.read_up_to(dict.fromkeys(range(sizes.stream.partitions), sizes.events // sizes.stream.partitions))
        with tempfile.TemporaryDirectory(prefix="bench-ysb-", dir=folder, ignore_cleanup_errors=True) as name:
            for repeat in range(sizes.repeats):
                output = f"{topic}-{repeat}"
                task = Task(
                    servers=servers,
                    topic=topic,
                    output=output,
                    stream=sizes.stream,
                    window_ms=WINDOW_MS,
                    most=sizes.most,
                )
                found["baseline"].append(_measured(task, redis_url, Path(name) / output, oracle.counts(), sizes))
                wanted, place = oracle.counts(closed=True), Path(name) / f"{output}-state"
                found["state"].append(state.measured(sizes.mode, task, place, wanted, sizes.patience))
                for one, runs in found.items():
                    note(f"run {repeat + 1} of {sizes.repeats}, {one}: {runs[-1]['events_per_s']:,.0f} events/s")
    finally:
        topics.delete(servers, topic)
    pairs = zip(found["state"], found["baseline"], strict=True)
    ratio = spread([mine["events_per_s"] / before["events_per_s"] for mine, before in pairs])
    rows = {name: _row(runs) for name, runs in found.items()}
    return {
        "events_per_s": rows["baseline"]["events_per_s"],
        "state_vs_baseline": ratio["median"],
        "spread": {"events_per_s": rows["baseline"]["spread"]["events_per_s"], "state_vs_baseline": ratio},
        "systems": rows,
        "settings": {**msgspec.to_builtins(sizes), "format": "seven-field JSON", "flush_s": baseline_job.FLUSH_SECONDS},
    }


def _measured(task: Task, redis_url: str, folder: Path, wanted: Counts, sizes: Sizes) -> dict[str, float]:
    import redis

    client = redis.Redis.from_url(redis_url)
    client.flushdb()
    client.mset({f"ad:{ad}": ad // ADS_PER_CAMPAIGN for ad in range(sizes.stream.ads)})
    params = {"servers": task.servers, "topic": task.topic, "redis": redis_url, "window-ms": task.window_ms}
    params |= {name: getattr(task.stream, name) for name in ("partitions", "campaigns", "step")}
    options = [part for name, value in params.items() for part in ("--param", f"{name}={value}")]
    command = [sys.executable, "-m", "streamwork", "run", baseline_job.__file__, "--root", folder / "root"]
    command += ["--mode", sizes.mode, "--no-restart", *(["--master", "local[2]"] if sizes.mode != "local" else [])]
    places = [str(Path(streamwork.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    total, until = sum(wanted.values()), time.monotonic() + sizes.patience
    seen: list[tuple[float, int, float]] = []  # (time, views, CPU seconds)
    with Program(folder, [*command, *options], environment) as program:
        while not seen or seen[-1][1] < total:
            program.look()
            now, views = time.time(), int(client.get("views") or 0)
            if not seen or views > seen[-1][1]:
                seen.append((now, views, program.samples[-1][1]))
            elif time.monotonic() > until:
                raise JobFailed(
                    "SW-BENCH-FAILED",
                    f"{views:,} of {total:,} views are in Redis after {sizes.patience:.0f} s",
                    "the machine is too slow, or the job has stopped",
                )
            time.sleep(LOOK_SECONDS)
    check("baseline", _counts(client), wanted)
    client.flushdb()
    client.close()
    shutil.rmtree(folder, ignore_errors=True)
    *before, last = seen
    first = next((one for one in before if one[1] >= total // 4), before[-1])  # a short run is over between two looks
    events = (last[1] - first[1]) / total * sizes.events
    return {"events_per_s": events / (last[0] - first[0]), "cpu_s_per_million": (last[2] - first[2]) / events * 1e6}


def _counts(client: Any) -> Iterator[tuple[int, int, int]]:
    for name, views in client.hgetall("counts").items():
        campaign, _, window = name.decode().partition(":")
        yield int(campaign), int(window), int(views)


def _row(runs: list[dict[str, float]]) -> dict[str, Any]:
    spreads = {name: spread([one[name] for one in runs], 0 if name == "events_per_s" else 3) for name in runs[0]}
    return {**{name: one["median"] for name, one in spreads.items()}, "spread": spreads}
