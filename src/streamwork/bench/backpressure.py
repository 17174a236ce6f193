"""``streamwork bench backpressure``: a sink that is ten times slower for a minute, in live mode.

A log of two partitions is read by two tasks; all events go to one instance with the sink. Events come at a steady rate that the
sink can take. Then the sink takes ten times as long for each event, and later as long as before. Measured under `sources`
(at-least-once) and `drop` (at-most-once), each in a run of its own. Under `drop` few events may wait (`buffer`): what waits is as
old as the time that the sink takes for it, so with the default of 65,536 events nothing would be fresh.

    memory_ratio           the most memory of the tasks while the sink is slow and after it, against the most before
    lost, dropped          events that are not in the output, and those that are counted as dropped
    seconds_to_full_speed  from the end of the slow time until the output has its earlier rate, over one second
    caught_up_s            until events are no older than before
    oldest_s               the highest age of an event at the sink
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil

from streamwork import EventLog
from streamwork.bench.backpressure_job import OUTPUT, ROW, SLOW, Tick
from streamwork.errors import JobFailed
from streamwork.observe.processes import JobProcesses
from streamwork.observe.status import read_status
from streamwork.world import RealClock

Note = Callable[[str], None]
JOBFILE = """from pathlib import Path

from streamwork.bench.backpressure_job import build

job = build(Path(__file__).parent, {policy!r}, {semantics!r}, {seconds!r}, {buffer!r})
"""
SEMANTICS = {"sources": "at-least-once", "drop": "at-most-once"}
APPEND_SECONDS = 0.05
SAMPLE_SECONDS = 0.25
FULL_SPEED = 0.9
"""The output has its earlier rate if it has this part of it."""
PATIENCE = 300.0


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    rate: int = 4_000  # events per second
    sink_seconds: float = 0.000_1  # for each event; ten times that while it is slow
    drop_buffer: int = 1_000  # events that may wait in each channel, under `drop`
    warm_seconds: float = 10.0  # before anything counts
    before_seconds: float = 15.0
    slow_seconds: float = 60.0


FULL = Sizes()
QUICK = Sizes(rate=1_000, sink_seconds=0.000_2, warm_seconds=1.0, before_seconds=2.0, slow_seconds=3.0)


class Sample(msgspec.Struct, frozen=True):
    at: float  # monotonic seconds
    rows: int
    memory: int  # bytes of all tasks


def run(folder: Path | None = None, sizes: Sizes = FULL, note: Note = lambda line: None) -> dict[str, Any]:
    """Measure and return all figures; the first ones are those of `sources`. Raises AssertionError if a result is wrong."""
    found: dict[str, dict[str, Any]] = {}
    for policy in SEMANTICS:
        with tempfile.TemporaryDirectory(prefix="bench-backpressure-", dir=folder) as scratch:
            found[policy] = _measure(Path(scratch), policy, sizes, note)
    main = found["sources"]
    return {
        "memory_ratio": main["memory_ratio"],
        "seconds_to_full_speed": main["seconds_to_full_speed"],
        "lost": main["lost"],
        "policies": found,
        "settings": msgspec.to_builtins(sizes),
    }


def _measure(folder: Path, policy: str, sizes: Sizes, note: Note) -> dict[str, Any]:
    (folder / "job.py").write_text(
        JOBFILE.format(
            policy=policy,
            semantics=SEMANTICS[policy],
            seconds=sizes.sink_seconds,
            buffer=sizes.drop_buffer if policy == "drop" else None,
        )
    )
    log = EventLog.create(folder / "ticks.log", Tick, key="number", partitions=2)
    log.append([Tick(0, time.time())])
    with _job(folder) as job, contextlib.ExitStack() as stack:
        samples = Samples(folder, job)
        samples.until(lambda: samples.rows > 0, "the first row")  # Spark starts
        sent = stack.enter_context(_appending(log, sizes.rate))
        note(f"{policy}: {sizes.before_seconds:g} s at {sizes.rate:,} events/s")
        samples.take(sizes.warm_seconds)
        began = samples.take(sizes.before_seconds)
        note(f"{policy}: the sink is slow for {sizes.slow_seconds:g} s")
        (folder / SLOW).touch()
        slow_from = samples.take(sizes.slow_seconds)
        (folder / SLOW).unlink()
        ended = samples.all[-1].at
        before = samples.rate(began, slow_from)
        full = samples.until(lambda: samples.rate(samples.now - 1.0, samples.now) >= FULL_SPEED * before, "full speed")
        normal_age = max(samples.ages(began, slow_from), default=0.0)
        caught_up = samples.until(lambda: samples.newest_age() <= normal_age + 1.0, "the end of the backlog")
        most = sent.stop()
        note(f"{policy}: waiting for the last of {most:,} events")
        dropped = 0

        def is_complete() -> bool:
            nonlocal dropped
            counts = read_status(folder / "root", "pressed", RealClock(), watch=False).counts
            dropped = counts["pass"].committed["dropped"] if "pass" in counts else 0
            return samples.rows + dropped >= most

        samples.until(is_complete, "the last event")
    rows = samples.numbers()
    assert len(rows) == len(set(rows)), "an event came twice, without any failure"
    lost = most - len(rows) - dropped
    assert lost == 0, f"{lost} events are neither in the output nor counted as dropped"
    before_memory = max(one.memory for one in samples.all if began <= one.at <= slow_from)
    return {
        "memory_ratio": round(max(one.memory for one in samples.all if one.at > slow_from) / before_memory, 3),
        "memory_before_mb": round(before_memory / 1e6),
        "seconds_to_full_speed": round(full - ended, 1),
        "caught_up_s": round(caught_up - ended, 1),
        "rate_before": round(before),
        "rate_slow": round(samples.rate(slow_from, ended)),
        "rate_catching_up": round(samples.rate(ended, caught_up)),
        "oldest_s": round(max(samples.ages(slow_from, samples.now)), 1),
        "events": most,
        "dropped": dropped,
        "lost": lost,
    }


class Samples:
    """Of a job that runs."""

    def __init__(self, folder: Path, job: subprocess.Popen[bytes]) -> None:
        self._output, self._job = folder / OUTPUT, job
        self._printed = folder / "job.txt"
        self.all: list[Sample] = []

    @property
    def now(self) -> float:
        return self.all[-1].at

    @property
    def rows(self) -> int:
        return self.all[-1].rows if self.all else 0

    def sample(self) -> None:
        if self._job.poll() is not None:
            raise self._failed("it has ended")
        size = self._output.stat().st_size if self._output.exists() else 0
        memory = 0
        for task in JobProcesses.of(self._job.pid).tasks:
            try:
                memory += task.memory_info().rss
            except psutil.Error:
                continue
        self.all.append(Sample(time.monotonic(), size // ROW.size, memory))

    def take(self, seconds: float) -> float:
        """Sample for so long. Returns when it began."""
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            self.sample()
            time.sleep(SAMPLE_SECONDS)
        return began

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Sample until a condition holds. Returns when that was."""
        until = time.monotonic() + PATIENCE
        self.sample()
        while not condition():
            if time.monotonic() > until:
                raise self._failed(f"{what} did not come")
            time.sleep(SAMPLE_SECONDS)
            self.sample()
        return self.now

    def rate(self, start: float, end: float) -> float:
        """Rows per second."""
        mine = [one for one in self.all if start <= one.at <= end]
        if len(mine) < 2:
            return 0.0
        return (mine[-1].rows - mine[0].rows) / (mine[-1].at - mine[0].at)

    def ages(self, start: float, end: float) -> list[float]:
        """The ages of the events that were written in this time."""
        mine = [one for one in self.all if start <= one.at <= end]
        if not mine:
            return []
        content = self._output.read_bytes()[mine[0].rows * ROW.size : mine[-1].rows * ROW.size]
        return [age for _, age in ROW.iter_unpack(content)]

    def newest_age(self) -> float:
        with self._output.open("rb") as file:
            file.seek((self.rows - 1) * ROW.size)
            return float(ROW.unpack(file.read(ROW.size))[1])

    def numbers(self) -> list[int]:
        content = self._output.read_bytes()
        return [number for number, _ in ROW.iter_unpack(content[: len(content) // ROW.size * ROW.size])]

    def _failed(self, what: str) -> JobFailed:
        said = self._printed.read_text(errors="replace").splitlines()[-5:]
        return JobFailed(
            "SW-BENCH-FAILED",
            f"{what}; the job printed: {' | '.join(said)}",
            "run the benchmark again on a machine that does nothing else",
        )


@contextmanager
def _job(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "streamwork", "run", str(folder / "job.py"), "--mode", "live"]
    with (folder / "job.txt").open("wb") as output:
        job = subprocess.Popen([*command, "--root", str(folder / "root")], stdout=output, stderr=subprocess.STDOUT)
    try:
        yield job
    finally:
        job.terminate()
        try:
            job.wait(60.0)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


class _Appending:
    """Appends events at a steady rate."""

    def __init__(self, log: EventLog[Tick], rate: int) -> None:
        self._log, self._count = log, max(1, round(rate * APPEND_SECONDS))
        self._ends = threading.Event()
        self._sent = 1
        self._thread = threading.Thread(target=self._append, daemon=True)
        self._thread.start()

    def _append(self) -> None:
        due = time.monotonic()
        while not self._ends.wait(max(0.0, due - time.monotonic())):
            now = time.time()
            self._log.append([Tick(self._sent + n, now) for n in range(self._count)])
            self._sent += self._count
            due += APPEND_SECONDS

    def stop(self) -> int:
        """Returns how many events were appended."""
        self._ends.set()
        self._thread.join()
        return self._sent


@contextmanager
def _appending(log: EventLog[Tick], rate: int) -> Iterator[_Appending]:
    appending = _Appending(log, rate)
    try:
        yield appending
    finally:
        appending.stop()
        log.close()
