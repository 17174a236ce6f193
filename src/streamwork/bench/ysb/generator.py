"""The variant `generator`: how many events a second are made, as seven-field JSON, and taken by the broker. Nothing reads them."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from streamwork.bench.contest import Note, Wrong
from streamwork.bench.spread import spread
from streamwork.bench.ysb import topics
from streamwork.bench.ysb.events import Stream
from streamwork.bench.ysb.topics import Senders, ends


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    events: int = 10_000_000
    repeats: int = 5
    stream: Stream = Stream(step=80)


FULL = Sizes()
QUICK = Sizes(events=20_000, repeats=1)


def run(servers: str, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures."""
    speeds: list[float] = []
    size = sum(map(len, sizes.stream.rows(0, 0, 1_000).as_json(0))) / 1_000
    for repeat in range(sizes.repeats):
        topic = f"ysb-generator-{time.time_ns()}"
        topics.create(servers, topic, sizes.stream.partitions)
        try:
            with Senders(servers, topic, sizes.stream, sizes.events) as senders:
                sent = senders.result()
            if (there := sum(ends(servers, topic).values())) != sizes.events:
                raise Wrong(f"the topic has {there:,} events; {sizes.events:,} were acknowledged")
        finally:
            topics.delete(servers, topic)
        speeds.append(sent.events / sent.seconds)
        note(f"run {repeat + 1} of {sizes.repeats}: {speeds[-1]:,.0f} events/s")
    events, bytes_ = spread(speeds, 0), spread([speed * size / 1e6 for speed in speeds], 1)
    return {
        "events_per_s": events["median"],
        "mb_per_s": bytes_["median"],
        "spread": {"events_per_s": events, "mb_per_s": bytes_},
        "settings": {**msgspec.to_builtins(sizes), "format": "seven-field JSON", "bytes_per_event": round(size, 1)},
    }
