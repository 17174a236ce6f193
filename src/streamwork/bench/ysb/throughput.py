"""The variants `inside` and `log`: how many events a second, exactly-once, with a checkpoint every second.

    inside   the generator is a source of the job
    log      the events are in an embedded log on the same machine; the job reads three of their seven columns

Events are typed columns, not text; the same with seven-field JSON is reported beside it. Each run processes the same number of
events from an empty root, in processes of its own. Its speed is that between the first checkpoint after the warm-up and the last
one. All counts of windows are compared with the oracle.
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
from streamwork.bench.ysb.events import Ad, AdLine, Stream
from streamwork.bench.ysb.oracle import Counts, Oracle, check
from streamwork.bench.ysb.running import Progress, RunningJob
from streamwork.components.times import microseconds
from streamwork.log import EventLog

JOB, SOURCE, TABLE = "ysb", "events", "counts"
COLUMNS, JSON = "columns", "json"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    events: int = 120_000_000
    warm: int = 24_000_000
    repeats: int = 5
    modes: tuple[str, ...] = ("live", "microbatch")
    per_checkpoint: int = 8_000_000
    """In microbatch mode: the most events of a checkpoint, which is to take about a second."""
    json_part: float = 0.1
    """With JSON: this part of the events."""
    stream: Stream = Stream()


FULL = Sizes()
QUICK = Sizes(
    events=400_000,
    warm=100_000,
    repeats=1,
    modes=("local",),
    per_checkpoint=50_000,
    json_part=0.5,
    stream=Stream(step=500),
)


def run(
    variant: str, folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None
) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a count is wrong."""
    formats = {COLUMNS: sizes, JSON: as_json(sizes)}
    found: dict[str, dict[str, list[dict[str, float]]]] = {name: {mode: [] for mode in sizes.modes} for name in formats}
    settings = {**msgspec.to_builtins(sizes), "format": "typed columns", "semantics": "exactly-once", "cores": 2}
    with tempfile.TemporaryDirectory(prefix="bench-ysb-", dir=folder) as name:
        scratch = Path(name)
        logs = {name: scratch / name for name in formats}
        if variant == "log":
            for name, its in formats.items():
                note(f"appending {its.events:,} events to the log, as {name}")
                settings[f"{name}_bytes_per_event"] = fill(logs[name], its, name)
        wanted = {name: expected(its) for name, its in formats.items()}
        for repeat in range(sizes.repeats):
            for name, its in formats.items():
                params = {"variant": variant, "events": its.events, "per-checkpoint": its.per_checkpoint}
                params |= {field: getattr(its.stream, field) for field in ("partitions", "campaigns", "step")}
                params |= {"json": "true" if name == JSON else "false", "log": logs[name]}
                for mode in sizes.modes:
                    figures = _measured(scratch / f"{mode}-{name}-{repeat}", mode, params, its, wanted[name])
                    found[name][mode].append(figures)
                    speed = figures["events_per_s"]
                    note(f"run {repeat + 1} of {sizes.repeats}, {mode}, {name}: {speed:,.0f} events/s")
    rows = {name: {mode: _row(runs) for mode, runs in modes.items()} for name, modes in found.items()}
    fastest = {name: max(modes, key=lambda mode: modes[mode]["events_per_s"]) for name, modes in rows.items()}
    best = rows[COLUMNS][fastest[COLUMNS]]
    return {
        **best,
        "json_events_per_s": rows[JSON][fastest[JSON]]["events_per_s"],
        "mode": fastest[COLUMNS],
        "modes": rows[COLUMNS],
        "json": rows[JSON],
        "settings": settings,
    }


def as_json(sizes: Sizes) -> Sizes:
    """The same with fewer events."""
    part = sizes.json_part
    return msgspec.structs.replace(
        sizes,
        events=int(sizes.events * part),
        warm=int(sizes.warm * part),
        per_checkpoint=int(sizes.per_checkpoint * part),
        stream=msgspec.structs.replace(sizes.stream, step=int(sizes.stream.step / part)),
    )


def fill(log: Path, sizes: Sizes, format: str = "columns") -> float:  # noqa: A002
    """Append the events to a log without a key. Returns its bytes per event."""
    stream = sizes.stream
    each = sizes.events // sizes.stream.partitions
    with EventLog.create(log, AdLine if format == JSON else Ad, partitions=stream.partitions) as events:
        parts = [stream.pieces(partition, 0, each) for partition in range(stream.partitions)]
        for turn in zip(*parts, strict=True):  # a log without a key gives its partitions batches in turn
            for first, rows in turn:
                events.append(rows.with_lines(first) if format == JSON else rows.as_batch(first))
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
