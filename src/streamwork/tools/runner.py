"""Running a job: what ``streamwork run`` and ``job.run()`` share."""

from __future__ import annotations

import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import msgspec

from streamwork.epoch import Driver, Manifest, Step, Store
from streamwork.epoch.driver import Started
from streamwork.errors import JobFailed, WrongUse
from streamwork.hosts.local import LocalHost
from streamwork.hosts.session import DEFAULT_MASTER, start_spark
from streamwork.job import Job, Layout, jobfile
from streamwork.job.settings import seconds
from streamwork.world import Clock, RealClock, RealDisk

IDLE_SECONDS = 0.05


class Mode(Enum):
    MICROBATCH = "microbatch"
    LOCAL = "local"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a job; what is None is the job's own choice."""

    mode: Mode = Mode.MICROBATCH
    root: Path
    master: str = DEFAULT_MASTER
    until_caught_up: bool = False
    checkpoint_every: float | None = None
    spark_log: bool = False
    module_folder: Path | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What a run did."""

    job: str
    root: str
    mode: str
    started: str
    fence: int
    checkpoint: int
    checkpoints: int
    events: int
    dropped: int
    seconds: float


class Watcher(Protocol):
    """Shows a run to somebody: starts, steps, the end."""

    def on_starting(self, job: str, mode: Mode, root: Path) -> None: ...

    def on_started(self, job: str, started: Started) -> None: ...

    def on_step(self, step: Step, epoch: int, manifest: Manifest | None) -> None: ...

    def on_end(self, outcome: Outcome) -> None: ...

    def close(self) -> None:
        """Called however the run ended."""


class Tally:
    """Counts what a run did, and tells a watcher."""

    def __init__(self, sources: tuple[str, ...], watcher: Watcher | None) -> None:
        self.checkpoints = self.events = self.dropped = 0
        self._sources = sources
        self._watcher = watcher

    def on_step(self, step: Step, epoch: int, manifest: Manifest | None) -> None:
        if manifest is not None and step is Step.COMPLETED:
            counted = [manifest.counters[name] for name in self._sources]
            self.checkpoints += 1
            self.events += sum(counters["processed"] for counters in counted)
            self.dropped += sum(counters["dropped"] for counters in counted)
        if self._watcher is not None:
            self._watcher.on_step(step, epoch, manifest)


def run(job: Job, options: Options, watcher: Watcher | None = None, clock: Clock | None = None) -> Outcome:
    """Run until the input is finished, until it is caught up with (if asked), or until SIGINT or SIGTERM.

    A stop asked for by a signal lets the epoch under way complete. Two epochs begin `checkpoint_every` apart, except while there
    is a backlog: then the next begins at once.
    """
    clock = clock or RealClock()
    graph = job.graph()
    every = job.settings.checkpoint_every if options.checkpoint_every is None else options.checkpoint_every
    began = clock.monotonic()
    if watcher is not None:
        watcher.on_starting(job.name, options.mode, options.root)
    if options.mode is Mode.MICROBATCH:
        Layout.of(graph, job.settings.groups).check_one_chain("Spark")
    tally = Tally(tuple(node.id for node in graph.sources), watcher)
    store = Store(RealDisk(), options.root, job.name)
    host = _host(options, store)
    driver = Driver(graph, job.settings, store, host, clock, lambda: secrets.token_hex(16), tally)
    try:
        started = driver.start()
        if watcher is not None:
            watcher.on_started(job.name, started)
        ends = options.until_caught_up or driver.finished()
        with _stop_on_signal(clock) as stop:
            while not stop.asked:
                planned = clock.monotonic()
                if driver.run_epoch() is None:
                    if ends:
                        break
                    stop.wait(IDLE_SECONDS)
                elif not ends and not driver.behind():
                    stop.wait(max(0.0, planned + every - clock.monotonic()))
    except OSError as error:
        raise JobFailed(
            "SW-IO-FAILED",
            str(error),
            "make room, or bring the file or folder back, and start again; --root chooses another folder",
        ) from error
    finally:
        driver.close()
        host.close()
    outcome = Outcome(
        job=job.name,
        root=str(options.root),
        mode=options.mode.value,
        started="new" if started.new else f"resumed at checkpoint {started.resumed_at}",
        fence=started.fence,
        checkpoint=driver.at.epoch,
        checkpoints=tally.checkpoints,
        events=tally.events,
        dropped=tally.dropped,
        seconds=round(clock.monotonic() - began, 3),
    )
    if watcher is not None:
        watcher.on_end(outcome)
    return outcome


def run_here(
    job: Job,
    mode: str = "local",
    root: str | Path | None = None,
    until_caught_up: bool = False,
    checkpoint_every: str | float | None = None,
    master: str = DEFAULT_MASTER,
    spark_log: bool = False,
    watcher: Watcher | None = None,
) -> Outcome:
    """`Job.run`: run from Python code; ``python job.py`` ends up here."""
    if jobfile.loading is not None:
        raise WrongUse(
            "SW-JOB-RUN-AT-IMPORT",
            f"{jobfile.loading.name} runs its job while it is imported",
            'put job.run() under  if __name__ == "__main__":',
        )
    if mode not in {known.value for known in Mode}:
        raise WrongUse(
            "SW-JOB-SETTING", f"mode {mode!r} is not known", f"use one of: {', '.join(m.value for m in Mode)}"
        )
    main = getattr(sys.modules["__main__"], "__file__", None)
    home = Path(main).absolute().parent if main else Path.cwd()
    folder = None
    if Mode(mode) is Mode.MICROBATCH:
        job, folder = _importable(job, Path(main).absolute() if main else None)
    options = Options(
        mode=Mode(mode),
        root=Path(root).absolute() if root is not None else home / ".streamwork",
        master=master,
        until_caught_up=until_caught_up,
        checkpoint_every=None if checkpoint_every is None else seconds(checkpoint_every),
        spark_log=spark_log,
        module_folder=folder,
    )
    if watcher is None:
        from streamwork.tools.progress import watcher_for  # it shows what this module does, so it stands above it

        watcher = watcher_for(sys.stderr)
    try:
        return run(job, options, watcher)
    finally:
        watcher.close()


def _importable(job: Job, main: Path | None) -> tuple[Job, Path | None]:
    """Classes of ``__main__`` do not reach Spark's workers: take the job from its file, imported under a stable name."""
    graph = job.graph()
    kinds = [k for n in graph.nodes for k in (type(n.component), n.takes, n.keeps, n.gives) if k is not None]
    if not any(kind.__module__ == "__main__" for kind in kinds):
        return job, None
    if main is None or main.suffix != ".py":
        raise WrongUse(
            "SW-JOB-MAIN",
            f"job {job.name!r} is defined in an interactive session, where Spark's workers cannot import it from",
            'put it into a file and use `streamwork run FILE`, or run it with mode="local"',
        )
    return jobfile.load_job(f"{main}:{job.name}").job, main.parent


def _host(options: Options, store: Store) -> Any:
    if options.mode is Mode.LOCAL:
        return LocalHost(store.disk)
    from streamwork.hosts.spark_epochs import SparkEpochs

    log = None if options.spark_log else store.folder / "spark.log"
    return SparkEpochs(start_spark(options.master, log, [options.module_folder] if options.module_folder else []))


class Stop:
    """Whether somebody has asked for an end. A plain flag: a lock could be held at the moment the signal comes."""

    SLICE = 0.05

    def __init__(self, clock: Clock) -> None:
        self.asked = False
        self._clock = clock

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is asked for."""
        until = self._clock.monotonic() + seconds
        while not self.asked and (left := until - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, self.SLICE))


@contextmanager
def _stop_on_signal(clock: Clock) -> Iterator[Stop]:
    """SIGINT and SIGTERM ask for an end; a second signal acts as usual. Only the main thread can listen to signals."""
    stop = Stop(clock)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        stop.asked = True
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
