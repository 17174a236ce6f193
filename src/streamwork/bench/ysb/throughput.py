"""The variants `inside` and `log`: how many events a second, exactly-once, with a checkpoint every second.

    inside   the generator is a source of the job
    log      the events are in an embedded log on the same machine; the job reads three of their seven columns

Events are typed columns, not text. Each run processes the same number of events from an empty root, in processes of its own. Its
speed is that between the first checkpoint after the warm-up and the last one. All counts of windows are compared with the oracle.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from streamwork.bench.contest import Note, Wrong
from streamwork.bench.spread import spread
from streamwork.bench.ysb.events import Ad, Stream
from streamwork.bench.ysb.oracle import Counts, Oracle, check
from streamwork.bench.ysb.running import Progress, RunningJob
from streamwork.components.times import microseconds
from streamwork.log import EventLog

JOB, SOURCE, TABLE = "ysb", "events", "counts"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    events: int = 120_000_000
    warm: int = 24_000_000
    repeats: int = 5
    modes: tuple[str, ...] = ("live", "microbatch")
    per_checkpoint: int = 8_000_000
    """In microbatch mode: the events of a checkpoint, which is to take about a second."""
    stream: Stream = Stream()


FULL = Sizes()
QUICK = Sizes(events=400_000, warm=100_000, repeats=1, modes=("local",), per_checkpoint=50_000, stream=Stream(step=500))


def run(
    variant: str, folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None
) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a count is wrong."""
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in sizes.modes}
    with tempfile.TemporaryDirectory(prefix="bench-ysb-", dir=folder) as name:
        scratch = Path(name)
        params = {"variant": variant, "events": sizes.events, "per-checkpoint": sizes.per_checkpoint}
        params |= {name: getattr(sizes.stream, name) for name in ("partitions", "campaigns", "step")}
        if variant == "log":
            note(f"appending {sizes.events:,} events to the log")
            bytes_per_event = fill(scratch / "log", sizes)
            params["log"] = scratch / "log"
        wanted = expected(sizes)
        for repeat in range(sizes.repeats):
            for mode in sizes.modes:
                figures = _measured(scratch / f"{mode}-{repeat}", mode, params, sizes, wanted)
                found[mode].append(figures)
                note(f"run {repeat + 1} of {sizes.repeats}, {mode}: {figures['events_per_s']:,.0f} events/s")
    rows = {mode: _row(runs) for mode, runs in found.items()}
    fastest = max(rows, key=lambda mode: rows[mode]["events_per_s"])
    settings = {**msgspec.to_builtins(sizes), "format": "typed columns", "semantics": "exactly-once", "cores": 2}
    if variant == "log":
        settings["bytes_per_event"] = bytes_per_event
    return {**rows[fastest], "mode": fastest, "modes": rows, "settings": settings}


def fill(log: Path, sizes: Sizes) -> float:
    """Append the events to a log without a key. Returns its bytes per event."""
    each = sizes.events // sizes.stream.partitions
    with EventLog.create(log, Ad, partitions=sizes.stream.partitions) as events:
        parts = [sizes.stream.batches(partition, 0, each) for partition in range(sizes.stream.partitions)]
        for turn in zip(*parts, strict=True):  # a log without a key gives its partitions batches in turn
            for _, batch in turn:
                events.append(batch)
        events.sync()
    size = sum(path.stat().st_size for path in log.rglob("*.arrow"))
    return round(size / sizes.events, 1)


def expected(sizes: Sizes) -> Counts:
    oracle = Oracle(sizes.stream)
    each = sizes.events // sizes.stream.partitions
    oracle.read_up_to(dict.fromkeys(range(sizes.stream.partitions), each))
    return oracle.counts(closed=True)


def _measured(folder: Path, mode: str, params: dict[str, Any], sizes: Sizes, wanted: Counts) -> dict[str, float]:
    output = folder / "counts.db"
    with RunningJob(folder, JOB, SOURCE, mode, {**params, "output": output}) as job:
        seen = list(job.checkpoints(sizes.events))
        job.stop()
    if (came := seen[-1].events) != sizes.events:
        raise Wrong(f"{mode}: the job has had {came} events of {sizes.events}")
    check(mode, read_counts(output), wanted)
    return figures_of(seen, sizes.warm)


def figures_of(seen: list[Progress], warm: int) -> dict[str, float]:
    """Speed and CPU time between the first checkpoint after the warm-up and the last one."""
    first = next(one for one in seen if one.events >= warm)
    last = seen[-1]
    if last.events == first.events:
        raise Wrong("there is no checkpoint between the warm-up and the end")
    events, seconds = last.events - first.events, last.at - first.at
    return {
        "events_per_s": events / seconds,
        "cpu_s_per_million": (last.cpu - first.cpu) / events * 1e6,
        "checkpoint_s": seconds / (last.epoch - first.epoch),
    }


def read_counts(database: Path) -> Iterator[tuple[int, int, int]]:
    """(campaign, start of the window in microseconds, views) of each row."""
    with closing(sqlite3.connect(database)) as connection:
        for campaign, start, views in connection.execute(f"SELECT campaign, window_start, views FROM {TABLE}"):
            yield campaign, microseconds(datetime.fromisoformat(start)), views


def _row(runs: list[dict[str, float]]) -> dict[str, Any]:
    spreads = {name: spread([one[name] for one in runs], 0 if name == "events_per_s" else 3) for name in runs[0]}
    return {**{name: one["median"] for name, one in spreads.items()}, "spread": spreads}
