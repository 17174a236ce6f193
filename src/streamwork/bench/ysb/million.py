"""The variant `million`: a million campaigns. Results written to Redis, against the same results read from the job's state.

Both sides run the same job on the same events, in turn, and serve reads at a fixed rate (open loop) from this process: the count of
a random campaign, from Redis or from the job's folder. The age of a read is the time since the newest checkpoint in it was written;
`fresh` says whether 99 of 100 were at most 2 s old. At the end the counts of all campaigns are compared with the oracle.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streamwork import query
from streamwork.bench.contest import Note, Wrong
from streamwork.bench.spread import spread
from streamwork.bench.ysb import million_job
from streamwork.bench.ysb.events import ADS_PER_CAMPAIGN, BEGIN, Array, Stream
from streamwork.bench.ysb.oracle import VIEW
from streamwork.bench.ysb.running import Progress, RunningJob
from streamwork.bench.ysb.throughput import figures_of
from streamwork.components.times import microseconds

DIRECT, REDIS = "direct", "redis"
OLDEST = 2.0
"""Seconds."""


HOUR = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=BEGIN)
CHUNK = 10_000
Read = Callable[[int], float]
"""Reads the count of a campaign; returns its age."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    direct_events: int = 40_000_000
    redis_events: int = 3_000_000
    warm: float = 0.2
    """This part of the events."""
    repeats: int = 5
    mode: str = "microbatch"
    reads_per_s: float = 500.0
    direct_per_checkpoint: int = 1_000_000
    redis_per_checkpoint: int = 200_000
    """The most events of a checkpoint: as many as take about a second, or reads are too old."""
    stream: Stream = Stream(campaigns=1_000_000)


FULL = Sizes()
QUICK = Sizes(
    direct_events=200_000,
    redis_events=200_000,
    repeats=1,
    mode="local",
    reads_per_s=50.0,
    direct_per_checkpoint=20_000,
    redis_per_checkpoint=20_000,
    stream=Stream(campaigns=1_000, step=10),
)


def run(
    redis_url: str, folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None
) -> dict[str, Any]:
    """Measure and return all figures. The Redis database is emptied. Raises `Wrong` if a count is wrong."""
    found: dict[str, list[dict[str, float]]] = {DIRECT: [], REDIS: []}
    for repeat in range(sizes.repeats):
        for side, runs in found.items():
            with tempfile.TemporaryDirectory(prefix="bench-ysb-", dir=folder) as name:
                runs.append(_measured(side, Path(name), redis_url, sizes))
            note(
                f"run {repeat + 1} of {sizes.repeats}, {side}: {runs[-1]['events_per_s']:,.0f} events/s, age of reads p99 "
                f"{runs[-1]['age_p99_s']:.2f} s"
            )
    pairs = zip(found[DIRECT], found[REDIS], strict=True)
    ratio = spread([mine["events_per_s"] / its["events_per_s"] for mine, its in pairs])
    rows = {side: _row(runs) for side, runs in found.items()}
    return {
        "direct_vs_redis": ratio["median"],
        "spread": {"direct_vs_redis": ratio},
        "systems": rows,
        "settings": {
            **msgspec.to_builtins(sizes),
            "format": "typed columns",
            "window": "60min",
            "semantics": "exactly-once",
        },
    }


def _measured(side: str, folder: Path, redis_url: str, sizes: Sizes) -> dict[str, float]:
    import redis

    events = sizes.direct_events if side == DIRECT else sizes.redis_events
    most = sizes.direct_per_checkpoint if side == DIRECT else sizes.redis_per_checkpoint
    warm = int(sizes.warm * events)
    params: dict[str, object] = {
        "events": events,
        "per-checkpoint": most,
        "output": folder / "counts.db",
    }
    params |= {name: getattr(sizes.stream, name) for name in ("partitions", "campaigns", "step")}
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.flushdb()
        if side == REDIS:
            params["redis"] = redis_url
        place = Path(million_job.__file__)
        with RunningJob(folder / "job", million_job.JOB, million_job.SOURCE, sizes.mode, params, place) as job:
            progress = job.checkpoints(events)
            seen = [next(progress)]  # before the first one there is nothing to read
            read = _from_redis(client, job) if side == REDIS else _from_state(job)
            with Reads(read, sizes) as reads:
                seen += _begun(progress, reads, warm)
            job.stop()
            check(side, _counts_in_redis(client) if side == REDIS else _counts_in_state(job), sizes, events)
        client.flushdb()
    return {**figures_of(seen, warm), **reads.figures()}


def _begun(progress: Iterator[Progress], reads: Reads, warm: int) -> Iterator[Progress]:
    """Reads count from the end of the warm-up."""
    for one in progress:
        if one.events >= warm:
            reads.measure()
        yield one


class Reads:
    """Reads random campaigns, at a fixed rate, in a thread."""

    def __init__(self, read: Read, sizes: Sizes) -> None:
        self._read, self._rate, self._campaigns = read, sizes.reads_per_s, sizes.stream.campaigns
        self._ages: list[float] = []
        self._seconds: list[float] = []
        self._measures, self._ends = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="reads", daemon=True)

    def _run(self) -> None:
        choose = random.Random(20)
        began, number = time.perf_counter(), 0
        try:
            while not self._ends.is_set():
                due = began + number / self._rate
                if (early := due - time.perf_counter()) > 0:
                    time.sleep(early)
                age = self._read(choose.randrange(self._campaigns))
                if self._measures.is_set():
                    self._ages.append(age)
                    self._seconds.append(time.perf_counter() - due)
                number += 1
        except BaseException as error:
            self._error = error

    def measure(self) -> None:
        self._measures.set()

    def figures(self) -> dict[str, float]:
        if self._error is not None:
            raise self._error
        if not self._ages:
            raise Wrong("no read was served after the warm-up")
        late = float(np.percentile(self._seconds, 99))
        return {
            "reads": float(len(self._ages)),
            "read_p99_ms": late * 1000,
            "age_p99_s": float(np.percentile(self._ages, 99)),
        }

    def __enter__(self) -> Reads:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def _from_redis(client: Any, job: RunningJob) -> Read:
    looked, age = 0.0, 0.0

    def read(campaign: int) -> float:
        nonlocal looked, age
        client.hget(f"{million_job.PREFIX}:{campaign}", "views")
        now = time.time()
        if now - looked > 0.05:  # the age of what Redis holds, as often as the other side looks for checkpoints
            age, looked = job.age() or 0.0, now
        return age + now - looked

    return read


def _from_state(job: RunningJob) -> Read:
    component = query.open(job.root, cache=job.root.parent / "cache")[million_job.COUNTS]

    def read(campaign: int) -> float:
        return component.get((campaign, HOUR)).age

    return read


def _counts_in_redis(client: Any) -> Iterator[tuple[int, int]]:
    names = list(client.scan_iter(match=f"{million_job.PREFIX}:*", count=CHUNK))
    for start in range(0, len(names), CHUNK):
        pipeline = client.pipeline(transaction=False)
        for name in names[start : start + CHUNK]:
            pipeline.hmget(name, "campaign", "views")
        yield from ((int(campaign), int(views)) for campaign, views in pipeline.execute())


def _counts_in_state(job: RunningJob) -> Iterator[tuple[int, int]]:
    rows = query.open(job.root, cache=job.root.parent / "cache")[million_job.COUNTS].scan().to_arrow()
    assert {microseconds(at) for at in rows["window_start"].unique().to_pylist()} == {BEGIN}
    return zip(rows["campaign"].to_pylist(), rows["views"].to_pylist(), strict=True)


def check(side: str, found: Iterator[tuple[int, int]], sizes: Sizes, events: int) -> None:
    """Raises `Wrong` if a campaign has another count than it should."""
    counts: Array = np.zeros(sizes.stream.campaigns, np.int64)
    for campaign, views in found:
        counts[campaign] += views
    wanted = expected(sizes.stream, events)
    if wrong := int((counts != wanted).sum()):
        raise Wrong(f"{side}: {wrong} of {len(wanted)} campaigns have wrong counts")


def expected(stream: Stream, events: int) -> Array:
    counts: Array = np.zeros(stream.campaigns, np.int64)
    for partition in range(stream.partitions):
        for _, rows in stream.pieces(partition, 0, events // stream.partitions):
            counts += np.bincount(rows.ads[rows.kinds == VIEW] // ADS_PER_CAMPAIGN, minlength=stream.campaigns)
    return counts


def _row(runs: list[dict[str, float]]) -> dict[str, Any]:
    digits = {"events_per_s": 0, "reads": 0}
    spreads = {name: spread([one[name] for one in runs], digits.get(name, 3)) for name in runs[0]}
    row = {name: one["median"] for name, one in spreads.items()}
    return {**row, "fresh": row["age_p99_s"] <= OLDEST, "spread": spreads}
