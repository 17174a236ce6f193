"""The job of ``streamwork bench recovery``, and the process that runs it until it is killed (`bench.recovery`).

When its first new epoch is completed, the process prints one line of JSON: the seconds of each part. It waits for a line, continues
until the next epoch is prepared, prints a line, and waits to be killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from streamwork.components import Event, KeyedCollector, KeyedOperator, Record
from streamwork.connectors import LogSource, SqliteSink
from streamwork.epoch import Manifest, Phase, Started
from streamwork.epoch.fences import Fences
from streamwork.epoch.pruning import Pruner
from streamwork.epoch.recovery.recovery import Recovery
from streamwork.epoch.sinks import Sinks
from streamwork.hosts.session import start_spark
from streamwork.job import Job
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.outcome import Outcome
from streamwork.run.runner import run

JOB, SOURCE, COUNTS, SINK = "recovery", "uses", "counts", "usage"
TIMED: dict[str, tuple[type, str]] = {
    "look": (Recovery, "check_job"),
    "wait": (Fences, "wait"),
    "claim": (Fences, "claim"),
    "register": (Sinks, "register"),
    "read": (Recovery, "read"),
    "finish": (Recovery, "finish"),
    "set_aside": (Recovery, "set_aside"),
    "prune": (Pruner, "begin"),
}
"""The parts of a recovery, and what does them."""
FIRST_EPOCH = (Phase.PLAN, Phase.COMPUTE, Phase.PREPARE, Phase.COMMIT, Phase.COMPLETE)

Life = dict[str, float]
"""Part -> seconds."""


class Use(Event, frozen=True):
    card: str
    amount: int


class Usage(Event, frozen=True):
    card: str
    seen: int
    total: int


class Count(Record):
    seen: int = 0
    total: int = 0


class Counting(KeyedOperator[Use, Count, Usage]):
    def apply(self, event: Use, state: Count, collector: KeyedCollector) -> None:
        state.seen += 1
        state.total += event.amount
        collector.emit(Usage(event.card, state.seen, state.total))


def build(folder: Path, size: int) -> Job:
    job = Job(JOB, checkpoint_every=0)
    uses = job.source(LogSource(folder / "log", Use, max_events=size), id=SOURCE)
    uses.apply(Counting(), key="card", id=COUNTS).sink(SqliteSink(folder / "out.db", "usage", key="card"), id=SINK)
    return job


def options_for(folder: Path, mode: Mode) -> RunOptions:
    return RunOptions(mode=mode, root=folder / "root", master="local[2]", until_caught_up=True, restart=False)


class Marks:
    """Records the times of the parts of a start and of the first new epoch; prints and waits as described above."""

    def __init__(self, parts: Life, up: float) -> None:
        self._parts = parts
        self._up = up
        self._last = time.monotonic()
        self._said = False

    def on_started(self, job: str, started: Started) -> None:
        self._lap("recovery")

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        if "recovery" not in self._parts:
            return
        if not self._said and phase in FIRST_EPOCH:
            self._lap(phase.value)
        if not self._said and phase is Phase.COMPLETE:
            self._said = True
            first = sum(self._parts[one.value] for one in FIRST_EPOCH)
            marks = {"up": self._up, "done": self._last, "epoch": float(epoch), "first_epoch": first}
            _say(msgspec.json.encode({**self._parts, **marks}).decode())
            _wait()
        elif self._said and phase is Phase.PREPARE:
            _say("prepared")
            _wait()

    def _lap(self, part: str) -> None:
        now = time.monotonic()
        self._parts[part] = self._parts.get(part, 0.0) + now - self._last
        self._last = now

    def on_starting(self, job: str, mode: Mode, root: Path) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, outcome: Outcome) -> None: ...
    def close(self) -> None: ...


def live(up: float, folder: str, mode: str = "", size: str = "") -> None:
    """One run of the job, in a process that was up at `up`; without `mode`, plain Spark."""
    imported = time.monotonic()
    parts: Life = {"imports": imported - up, "spark": 0.0}
    if not mode:
        _live_plainly(up, parts, Path(folder))
        return
    options = options_for(Path(folder), Mode(mode))
    if options.mode is Mode.MICROBATCH:
        start_spark(options.master, Path(folder) / "spark.log")
        parts["spark"] = time.monotonic() - imported
    for part, (owner, name) in TIMED.items():
        setattr(owner, name, _timed(getattr(owner, name), parts, part))
    run(build(Path(folder), int(size)), options, Marks(parts, up))


def _live_plainly(up: float, parts: Life, folder: Path) -> None:
    began = time.monotonic()
    session = start_spark("local[2]", folder / "spark.log")
    started = time.monotonic()
    rows = session.range(1).mapInArrow(_unchanged, "id long").collect()
    done = time.monotonic()
    assert [row.id for row in rows] == [0]
    _say(
        msgspec.json.encode(
            {**parts, "spark": started - began, "first_job": done - started, "up": up, "done": done}
        ).decode()
    )


def _unchanged(batches: Any) -> Any:
    return batches


def _timed(method: Callable[..., Any], parts: Life, part: str) -> Callable[..., Any]:
    def timed(*given: Any, **named: Any) -> Any:
        began = time.monotonic()
        try:
            return method(*given, **named)
        finally:
            parts[part] = parts.get(part, 0.0) + time.monotonic() - began

    return timed


def _wait() -> None:
    """Wait for a line from the benchmark. If the benchmark is gone, the process ends as if it had been killed."""
    if not sys.stdin.readline():
        os.kill(os.getpid(), signal.SIGKILL)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
