"""The job of the variant `baseline`: no state in the engine. Campaigns are looked up in Redis, and counts are kept there.

Each instance adds what it has counted to Redis every second. What it had counted since then is lost when it fails.

    ad:NUMBER        the campaign of an ad
    counts           hash, CAMPAIGN:WINDOW (microseconds) -> views
    views            all views that were added so far
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork import Event, Job, KafkaSource, Operator, field
from streamwork.bench.ysb.ad_json import AdJson
from streamwork.bench.ysb.events import AdView, Array, Stream
from streamwork.components import BatchCollector, Instance

JOB, SOURCE = "ysb-baseline", "events"
FLUSH_SECONDS = 1.0


class Flushed(Event, frozen=True):
    views: int


class CountInRedis(Operator[AdView, Flushed]):
    long_lived = True

    def __init__(self, url: str, ads: int, window: int) -> None:
        self._url, self._ads, self._window = url, ads, window

    def setup_instance(self, instance: Instance) -> None:
        import redis

        self._redis: Any = redis.Redis.from_url(self._url)
        self._campaigns: Array = np.full(self._ads, -1)  # the cache
        self._counts: dict[tuple[int, int], int] = {}
        self._lock, self._ends = threading.Lock(), threading.Event()
        self._flusher = threading.Thread(target=self._flush_each_second, daemon=True)
        self._flusher.start()

    def apply_batch(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        ads = batch.column("ad").to_numpy()
        campaigns = self._campaigns[ads]
        if (campaigns < 0).any():
            self._look_up(np.unique(ads[campaigns < 0]))
            campaigns = self._campaigns[ads]
        windows = batch.column("at").cast(pa.int64()).to_numpy() // self._window
        first, span = windows.min(), windows.max() - windows.min() + 1
        counts = np.bincount(campaigns * span + windows - first)
        with self._lock:
            for place in np.flatnonzero(counts).tolist():
                key = place // span, int(place % span + first) * self._window
                self._counts[key] = self._counts.get(key, 0) + int(counts[place])

    def _look_up(self, ads: Array) -> None:
        found = self._redis.mget([f"ad:{ad}" for ad in ads.tolist()])
        self._campaigns[ads] = np.array(found, np.int64)

    def _flush_each_second(self) -> None:
        while not self._ends.wait(FLUSH_SECONDS):
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, {}
        with self._redis.pipeline(transaction=False) as pipeline:
            for (campaign, window), views in counts.items():
                pipeline.hincrby("counts", f"{campaign}:{window}", views)
            pipeline.incrby("views", sum(counts.values()))
            pipeline.execute()

    def close(self) -> None:
        self._ends.set()
        self._flusher.join()
        self._flush()
        self._redis.close()


job = Job(JOB, checkpoint_every="1s", parallelism=2, semantics="at-most-once")
servers = job.param("servers", default="")
topic = job.param("topic", default="ads")
redis_url = job.param("redis", default="")
window_ms = job.param("window-ms", default=10_000)
stream = Stream(job.param("partitions", default=2), job.param("campaigns", default=100), job.param("step", default=2))

ads = job.source(KafkaSource(servers, topic, AdView, format=AdJson()), id=SOURCE)
views = ads.where(field("kind") == "view")
views.apply(CountInRedis(redis_url, stream.ads, window_ms * 1000), id="count").print()
