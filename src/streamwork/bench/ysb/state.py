"""The variant `state`: from Kafka, with the state in the engine, compared with peers on the same events, broker and machine.

One topic is filled with seven-field JSON. The systems read all of it in turn, each from its beginning, and write counts of windows
to a topic of their own. A consumer of committed records in this process notes when the right count of each window can be read. The
speed of a system is that between the first quarter of the windows and the last of them, so its start is not in it. All counts must
become right, or no speed is reported.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from streamwork.bench.contest import Note, Wrong, turned
from streamwork.bench.peers import Unavailable
from streamwork.bench.spread import spread
from streamwork.bench.ysb import topics
from streamwork.bench.ysb.arrivals import Arrivals
from streamwork.bench.ysb.events import Stream
from streamwork.bench.ysb.oracle import Counts, Oracle
from streamwork.bench.ysb.program import Program
from streamwork.bench.ysb.systems import FINAL, OURS, Task, command_of, topics_of
from streamwork.bench.ysb.topics import Senders
from streamwork.errors import JobFailed

WINDOW_MS = 10_000
SETTLE_SECONDS = 30.0
TOGETHER_SECONDS = 0.2
"""Results that become readable within this time were committed together."""
SPARK, FLINK = "spark", "flink"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    events: int = 15_000_000
    repeats: int = 5
    systems: tuple[str, ...] = ("live", "microbatch", SPARK, FLINK, "pathway", "bytewax", "quix")
    slow: tuple[str, ...] = ("bytewax", "quix")
    """They run once, until the first fifth of the windows is right."""
    patience: float = 300.0
    most: int = 1_000_000
    stream: Stream = Stream(step=80)


FULL = Sizes()
QUICK = Sizes(events=200_000, repeats=1, systems=("local",), most=20_000, stream=Stream(campaigns=20, step=1_000))


def run(
    servers: str, folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None
) -> dict[str, Any]:
    """Measure and return all figures."""
    found: dict[str, list[dict[str, float]]] = {}
    skipped: dict[str, str] = {}
    topic = f"ysb-ads-{time.time_ns()}"
    topics.create(servers, topic, sizes.stream.partitions)
    try:
        note(f"sending {sizes.events:,} events to the broker")
        with Senders(servers, topic, sizes.stream, sizes.events) as senders:
            sent = senders.result()
        note(f"sent {sent.events / sent.seconds:,.0f} events/s")
        wanted = _closed(sizes)
        with tempfile.TemporaryDirectory(prefix="bench-ysb-", dir=folder, ignore_cleanup_errors=True) as name:
            for repeat in range(sizes.repeats):
                for system in turned([one for one in sizes.systems if one not in skipped], repeat):
                    if repeat and system in sizes.slow:
                        continue
                    output = f"{topic}-{system}-{repeat}"
                    task = Task(
                        servers=servers,
                        topic=topic,
                        output=output,
                        stream=sizes.stream,
                        window_ms=WINDOW_MS,
                        most=sizes.most,
                    )
                    try:
                        place = Path(name) / f"{system}-{repeat}"
                        mine = first_fifth(wanted) if system in sizes.slow else wanted
                        figures = measured(system, task, place, mine, sizes.patience)
                    except (Unavailable, JobFailed) as why:
                        if system in OURS:
                            raise
                        skipped[system] = str(why)
                        note(f"{system} is left out: {why}")
                        continue
                    found.setdefault(system, []).append(figures)
                    note(f"run {repeat + 1} of {sizes.repeats}, {system}: {figures['events_per_s']:,.0f} events/s")
    finally:
        topics.delete(servers, topic)
    return _numbers(found, skipped, sizes, sent.events / sent.seconds)


def measured(system: str, task: Task, folder: Path, wanted: Counts, patience: float) -> dict[str, float]:
    """One run of a system over all events, and the check of its results."""
    command, environment = command_of(system, task, folder)
    outputs = topics_of(system, task.output)
    for output in outputs:
        topics.create(task.servers, output, 1)
    try:
        with Arrivals(task.servers, outputs, wanted) as arrivals, Program(folder, command, environment) as program:
            arrivals.wait(wanted, patience, program.look)
            if system in OURS:
                arrivals.wait_for(task.output + FINAL, len(wanted), SETTLE_SECONDS)
            found = figures_of(arrivals, program, wanted, task)
        check(system, arrivals, wanted)
    finally:
        topics.delete(task.servers, *outputs)
        shutil.rmtree(folder, ignore_errors=True)
    return found


def figures_of(arrivals: Arrivals, program: Program, wanted: Counts, task: Task) -> dict[str, float]:
    """The speed from when a quarter of the windows was right to when all were, and the CPU time.

    Results become readable commit by commit. What had become right with that quarter, at the same moment, does not count.
    """
    done: dict[int, float] = {}
    for (_, window), at in arrivals.right.items():
        done[window] = max(done.get(window, 0.0), at)
    windows = sorted(done)
    began, ended = done[windows[(len(windows) - 1) // 4]], done[windows[-1]]
    first = max(window for window in windows if done[window] <= began + TOGETHER_SECONDS)
    events = (windows[-1] - first) // task.stream.step * task.stream.partitions
    if not events:
        raise Wrong("all windows were right at the same moment: there are too few events, or batches are too large")
    cpu = program.cpu_at(ended) - program.cpu_at(began)
    return {"events_per_s": events / (ended - began), "cpu_s_per_million": cpu / events * 1e6}


def check(system: str, arrivals: Arrivals, wanted: Counts) -> None:
    """Raises `Wrong` if a last count of a closed window is not what is wanted."""
    for topic, counts in arrivals.last.items():
        wrong = [one for one, views in wanted.items() if counts.get(one) != views]
        beyond = topic.endswith(FINAL) and counts.keys() - wanted.keys()
        if wrong or beyond:
            raise Wrong(
                f"{system}: {len(wrong)} of {len(wanted)} windows in {topic} are wrong, {len(beyond or ())} too many"
            )


def first_fifth(wanted: Counts) -> Counts:
    """The counts of the first fifth of the windows, and of at least two."""
    starts = sorted({window for _, window in wanted})
    end = starts[: max(2, len(starts) // 5)][-1]
    return {one: views for one, views in wanted.items() if one[1] <= end}


def _closed(sizes: Sizes) -> Counts:
    oracle = Oracle(sizes.stream)
    oracle.read_up_to(dict.fromkeys(range(sizes.stream.partitions), sizes.events // sizes.stream.partitions))
    return oracle.counts(closed=True)


def _numbers(
    found: dict[str, list[dict[str, float]]], skipped: dict[str, str], sizes: Sizes, sent: float
) -> dict[str, Any]:
    rows = {name: _row(runs, found) for name, runs in found.items()}
    ours = [name for name in rows if name in OURS]
    best = max(ours, key=lambda name: rows[name]["events_per_s"])
    settings = {**msgspec.to_builtins(sizes), "format": "seven-field JSON", "window_ms": WINDOW_MS, "cores": 2}
    return {
        **{name: rows[best].get(name) for name in ("events_per_s", "ratio_vs_spark", "ratio_vs_flink")},
        "spread": rows[best]["spread"],
        "mode": best,
        "systems": rows,
        "skipped": skipped,
        "generator_events_per_s": round(sent),
        "settings": settings,
    }


def _row(runs: list[dict[str, float]], all_runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    spreads = {name: spread([one[name] for one in runs], 0 if name == "events_per_s" else 3) for name in runs[0]}
    for peer in (SPARK, FLINK):
        if peer in all_runs and all_runs[peer] is not runs:
            pairs = zip(runs, all_runs[peer], strict=False)
            spreads[f"ratio_vs_{peer}"] = spread([mine["events_per_s"] / its["events_per_s"] for mine, its in pairs])
    return {**{name: one["median"] for name, one in spreads.items()}, "spread": spreads}
