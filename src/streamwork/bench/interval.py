"""``streamwork bench interval``: what `checkpoint_every` costs, and what it saves.

A count per card from the embedded log into SQLite, exactly-once. For each interval, in processes of their own:

    latency         events are appended at a fixed rate (open loop). Latency is the time from when an event is due until a reader
                    of the table sees its row, which comes with its checkpoint
    computed_again  then all processes of the job are killed with -9, when half as many events have been applied since the last
                    visible checkpoint as come in an interval. The job is started again, and runs until it has caught up: how many
                    times an event was applied beyond once
    events_per_s    a backlog, from the first event that is applied to the last checkpoint that is completed. The intervals take
                    turns, in one session

The table must hold every event once, and the count of each card without gap or repetition. A difference is an error, and no
figure is reported. In `microbatch` events wait until their slice is computed; in `live` and `local` they are computed as they
come, and their rows wait. So the same interval gives about the same latency, but a kill finds other events under way.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from streamwork.bench.contest import Wrong, turned
from streamwork.bench.interval_job import applied, build
from streamwork.bench.open_loop import PATIENCE, TABLE, Rows, Sender, Use, failed, kill, reading, started
from streamwork.bench.spread import spread
from streamwork.components.duration import seconds
from streamwork.epoch import Manifest, Phase, Started
from streamwork.log import EventLog
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run as run_job

Note = Callable[[str], None]
JOBFILE = """from pathlib import Path

from streamwork.bench.interval_job import build

here = Path(__file__).parent
job = build(here, here / "uses.log")
"""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    mode: str = Mode.MICROBATCH.value
    intervals: tuple[str, ...] = ("100ms", "1s", "10s", "60s")
    cards: int = 1_000
    rate: int = 2_000  # events per second, open loop
    least_seconds: float = 5.0  # of an open loop; at least an interval
    warm_seconds: float = 2.0  # of intervals that are shorter than this, before anything counts
    backlog: int = 500_000
    repeats: int = 3


FULL = Sizes()
QUICK = Sizes(
    mode=Mode.LOCAL.value,
    intervals=("50ms", "500ms"),
    cards=20,
    rate=500,
    least_seconds=1.0,
    warm_seconds=0.0,
    backlog=2_000,
    repeats=1,
)


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures. Raises `Wrong` if a row is wrong. `note` receives progress lines."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-interval-", dir=folder) as scratch:
        for interval in sizes.intervals:
            found[interval] = _open_loop(Path(scratch) / interval, interval, sizes, note)
        for interval, speeds in _backlogs(Path(scratch), sizes, note).items():
            found[interval] = {"events_per_s": speeds["median"], **found[interval], "spread": {"events_per_s": speeds}}
    return {"intervals": found, "settings": msgspec.to_builtins(sizes)}


# ---- latency, and a kill ------------------------------------------------------------------------------------------------


def _open_loop(folder: Path, interval: str, sizes: Sizes, note: Note) -> dict[str, Any]:
    folder.mkdir()
    (folder / "job.py").write_text(JOBFILE)
    every = seconds(interval)
    options = ("--no-restart", "--checkpoint-every", interval)
    with EventLog.create(folder / "uses.log", Use, key="card", partitions=2) as log:
        sender = Sender(log, sizes.cards, sizes.rate)
        sender.append(1)
        with contextlib.ExitStack() as stack:
            job = stack.enter_context(started(folder, sizes.mode, *options))
            rows = Rows(folder, job)
            rows.until(lambda: applied(folder)[0] > 0, "the first event")
            stack.enter_context(sender.sending())  # now: what comes while Spark starts would be a backlog
            warm = sizes.warm_seconds if every < sizes.warm_seconds else 0.0
            began = time.time() + warm
            ends = began + max(sizes.least_seconds, every)
            rows.until(lambda: time.time() >= ends and rows.since(began) > 0, "a checkpoint")
            late = rows.latencies(began)
            half = max(1, math.ceil(sizes.rate * every / 2))
            rows.until(lambda: applied(folder)[0] - rows.visible >= half, "enough events for a kill")
            kill(job)
        sent = sender.sent
    note(f"{interval}: p50 {np.percentile(late, 50):,.0f} ms, p99 {np.percentile(late, 99):,.0f} ms; killed")
    with started(folder, sizes.mode, *options, "--until-caught-up") as job:
        if job.wait(PATIENCE) != 0:
            raise failed(folder, "the job did not go on after the kill")
    check(folder, sender.cards)
    again = applied(folder)[0] - sent
    note(f"{interval}: {again:,} events computed again")
    return {
        "p50_ms": _rounded(np.percentile(late, 50)),
        "p99_ms": _rounded(np.percentile(late, 99)),
        "max_ms": _rounded(late.max()),
        "computed_again": again,
    }


def check(folder: Path, cards: Counter[str]) -> None:
    """Every event must be in the table once, with the next count of its card. Raises `Wrong`."""
    with reading(folder) as db:
        numbers, different = db.execute(f"SELECT count(number), count(DISTINCT number) FROM {TABLE}").fetchone()
        found = db.execute(
            f"SELECT card, count(*), max(seen), count(DISTINCT seen) FROM {TABLE} GROUP BY card"
        ).fetchall()
    if numbers != different or numbers != cards.total():
        raise Wrong(f"{numbers} rows of {different} events, {cards.total()} events were sent")
    wrong = [card for card, *counts in found if set(counts) != {cards[card]}]
    if wrong:
        raise Wrong(f"the counts of {len(wrong)} cards are wrong, such as {wrong[0]}")


# ---- throughput ---------------------------------------------------------------------------------------------------------


def _backlogs(folder: Path, sizes: Sizes, note: Note) -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(17)
    codes = rng.integers(0, sizes.cards, sizes.backlog)
    names = pa.array([f"c{card}" for card in range(sizes.cards)])
    with EventLog.create(folder / "backlog.log", Use, key="card", partitions=2) as log:
        log.append(
            pa.record_batch(
                {
                    "number": np.arange(sizes.backlog),
                    "card": names.take(pa.array(codes)),
                    "due": np.zeros(sizes.backlog),
                }
            )
        )
    cards = Counter({f"c{card}": int(count) for card, count in enumerate(np.bincount(codes)) if count})
    speeds: dict[str, list[float]] = {interval: [] for interval in sizes.intervals}
    for repeat in range(-1, sizes.repeats):  # the first one is a warm-up
        for interval in turned([*sizes.intervals], repeat) if repeat >= 0 else sizes.intervals[:1]:
            speed = _backlog(folder, f"backlog-{interval}-{repeat}", interval, sizes, cards)
            if repeat >= 0:
                note(f"{interval}, {repeat + 1} of {sizes.repeats}: {speed:,.0f} events/s")
                speeds[interval].append(speed)
    return {interval: spread(found, 0) for interval, found in speeds.items()}


def _backlog(folder: Path, name: str, interval: str, sizes: Sizes, cards: Counter[str]) -> float:
    place, ended = folder / name, Ended()
    place.mkdir()
    options = RunOptions.parse(
        mode=sizes.mode,
        root=place / "root",
        master="local[2]",
        until_caught_up=True,
        checkpoint_every=interval,
        restart=False,
    )
    run_job(build(place, folder / "backlog.log"), options, ended)
    check(place, cards)
    return sizes.backlog / (ended.at - applied(place)[1])


class Ended:
    """Knows when the last checkpoint was completed."""

    def __init__(self) -> None:
        self.at = 0.0

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        if phase is Phase.COMPLETE:
            self.at = time.monotonic()

    def on_starting(self, job: str, mode: Mode, root: Path) -> None: ...
    def on_started(self, job: str, started: Started) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, outcome: Outcome) -> None: ...
    def close(self) -> None: ...


def _rounded(value: float) -> float:
    return round(float(value), 1)
