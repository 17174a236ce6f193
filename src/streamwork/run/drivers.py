"""`Drivers`: the drivers of one run, one after another."""

from __future__ import annotations

import contextlib
import secrets
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from streamwork.engine.vitals import clear_vitals
from streamwork.epoch import Driver, Host, Started, Store
from streamwork.epoch.control import Control
from streamwork.epoch.fences import End, Fences, moment
from streamwork.epoch.history.history import History
from streamwork.epoch.requests import READ_SECONDS, Requests
from streamwork.epoch.start_records import Drop
from streamwork.errors import StreamworkError, WrongUse
from streamwork.hosts.local import LocalHost
from streamwork.hosts.spark_host import start_spark_host
from streamwork.hosts.spark_life import spark_gone
from streamwork.job import Graph, Job
from streamwork.run.backfill import advise_batch, everything
from streamwork.run.job_log import JobLog
from streamwork.run.mode import Mode, check_long_lived, policy_note
from streamwork.run.on_error import advise, with_on_error
from streamwork.run.options import RunOptions
from streamwork.run.record import RunRecorder
from streamwork.run.restoring import check_restore, restore
from streamwork.run.retry_notes import RetryNotes
from streamwork.run.standby import SPARK_LOG, Heir, LostRace, StandbyRun, check_standby, is_lost_race
from streamwork.run.stop_request import STOPPED
from streamwork.run.stopping import Stop, Stopped
from streamwork.run.supervisor import supervise
from streamwork.run.tally import Tally
from streamwork.run.tracing import EpochTracer
from streamwork.run.watcher import LogWatcher, Watcher
from streamwork.world import Clock, RealDisk, RealProcesses, step_back

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

IDLE_SECONDS = 0.05
FAILURES = "failures.log"
"""In the job's folder: tracebacks of unexpected exceptions."""


class Drivers:
    """The drivers of one run. Each failed driver is followed by another one, as far as the job's `restart` allows."""

    def __init__(
        self,
        job: Job,
        options: RunOptions,
        watcher: Watcher | None,
        clock: Clock,
        stop: Stop,
        provider: TracerProvider | None = None,
    ) -> None:
        """`provider` takes the traces of epochs."""
        self.settings = options.settings(job.settings)
        self.started: Started | None = None  # how the first driver started
        self.driver: Driver | None = None
        self._holder: Driver | None = None  # the last driver that has claimed the job
        graph = with_on_error(job.graph(self.settings), options.on_error)
        _check_refill(graph, options.refill)
        self._graph = everything(graph) if options.mode is Mode.BATCH else graph
        self._host: Host | None = None  # while a driver runs
        self._options = options
        self._background = ThreadPoolExecutor(1, "streamwork-background", initializer=step_back)  # for snapshots
        self._watcher = watcher
        self._provider = provider
        self._clock = clock
        self._store = Store(RealDisk(), options.root, options.mode.folder(job.name))
        self._record = RunRecorder(
            self._store.disk, self._store.folder, clock, options.mode.value, self.settings.checkpoint_every
        )
        also = watcher.on_entry if isinstance(watcher, LogWatcher) else None
        self.log = JobLog(self._store.folder, options.mode.folder(job.name), clock, also)
        self.tally = Tally(tuple(node.id for node in self._graph.sources), watcher, self._record, self.log)
        self._retries = any(node.retry is not None for node in graph.nodes)
        self._retry_notes = RetryNotes(self._store.disk, self._store.folder, self.note)
        check_restore(options)
        self._restores = options.from_ is not None
        # What is restored is without that state already. Fields are dropped when it is rewritten.
        drops = tuple(name for name in options.drop_state if "." in name or not self._restores)
        self._drop = Drop(drops, options.drop_request or secrets.token_hex(8))
        control = Control(self._store.disk, self._store.folder, clock)
        self._requests = Requests(control, clock.monotonic, lambda: stop.asked)
        self._stop = stop
        check_standby(options)
        check_long_lived(graph, options.mode)
        self._standby = (
            StandbyRun(self._graph, self._store, self.settings.lease, clock, stop, self.note)
            if options.standby
            else None
        )

    def run(self) -> int:
        """Run until the end. Returns the number of restarts."""
        if note := policy_note(self._graph, self._options.mode):
            self.note(note)
        try:
            restarts = supervise(self, self.settings.restart, self._clock)
        except BaseException as error:
            cause = f"{error.code}: {error.cause}" if isinstance(error, StreamworkError) else type(error).__name__
            self._end(End.FAILED)
            self._answer(False, f"the job has failed: {cause}")
            if isinstance(error, StreamworkError):
                advise(error, self._options.command)
            raise
        self._end(End.FINISHED)
        self._answer(True, STOPPED)
        return restarts

    def _end(self, otherwise: End) -> None:
        """Record why the run has ended, for standbys: `otherwise`, unless a stop was requested."""
        by_request = self._requests.stop_requested_by_file or (self._standby is not None and self._standby.asked_to_end)
        why = End.STOPPED if by_request else End.SIGNALLED if self._stop.asked else otherwise
        if self._holder is not None:
            with contextlib.suppress(OSError):
                self._holder.fences.end(why)

    def run_driver(self) -> None:
        """Run one driver from its start to its end."""
        with contextlib.suppress(Stopped):
            while True:
                try:
                    return self._run_driver()
                except LostRace:
                    self.note("standby: another driver was faster")

    def _run_driver(self) -> None:
        self._stop.asked = self.stopping  # the driver before this one may have read a request
        silent = self._watch()
        self._stop.check()
        if self._restores:
            restore(self._graph, self.settings, self._store, self._options, self._clock, self.note)
            self._restores = False  # a restart goes on from there
        host = self._host = self._start_host()
        self._stop.check()
        host.open(self._graph)
        heir = self._wait_as_standby(host)
        history = History(self._store.folder / "history.sqlite", warn=self.note)
        driver = self.driver = Driver(
            self._graph,
            self.settings,
            self._store,
            host,
            self._clock,
            lambda: secrets.token_hex(16),
            self.tally,
            processes=RealProcesses(),
            history=history,
            take_over=self._options.take_over and self.started is None,  # a restart waits for other drivers
            accept_divergence=self._options.accept_divergence,
            background=self._background.submit,
            change_semantics=self._options.change_semantics,
            refill=self._options.refill,
            requests=self._requests,
            drop=self._drop,
            participants=self._tracers(),
        )
        driver.fences.tell, driver.fences.silent, driver.fences.sleep = self.note, silent, self._stop.sleep
        if heir is not None:
            driver.fences.heir_of, driver.fences.silent = heir.of, heir.silent
        try:
            started = driver.start()
            self._holder = driver
            self._record.started(self.fence)
            self.log.started(self.fence, f"started ({self._options.mode.value}) at checkpoint {started.resumed_at}")
            clear_vitals(self._store.disk, self._store.folder, self.fence)
            if self._standby is not None and heir is not None:
                self._standby.took_over()
            self.started = self.started or started
            if self._watcher is not None:
                self._watcher.on_started(self._graph.job, started)
            self._epochs(driver)
        except BaseException as error:
            self._host = None
            self._holder = driver if driver.fences.mine is not None else self._holder
            self._record.failed(self.fence, error)
            self.log.failed(error, 0 if driver.fences.mine is None else self.fence)
            with contextlib.suppress(Exception):  # the first error is raised
                _close(driver, host)
            self.tally.end_of(driver)
            if self._options.mode.on_spark and (gone := spark_gone(error)) is not None:
                raise gone from error
            if self._options.mode is Mode.BATCH and isinstance(error, StreamworkError):
                raise advise_batch(error) from error
            if heir is not None and self.fence == 0 and is_lost_race(error):
                raise LostRace from error
            raise
        self._host = None
        _close(driver, host)
        self.tally.end_of(driver)

    def _tracers(self) -> Sequence[EpochTracer]:
        """The tracer of a new driver, if traces are wanted."""
        if self._provider is None:
            return ()
        attributes = {
            "streamwork.job": self._options.mode.folder(self._graph.job),
            "streamwork.mode": self._options.mode.value,
            "streamwork.semantics": str(self._graph.promise),
        }
        return (EpochTracer(self._provider, self._clock, attributes),)

    def _wait_as_standby(self, host: Host) -> Heir | None:
        """Of a standby: wait until it is to take the job over. The host is closed if this raises."""
        if self._standby is None or self.started is not None:
            return None
        self._host = None  # this wait keeps the host warm itself
        try:
            heir = self._standby.wait(host)
        except Exception as error:
            if self._options.mode.on_spark and (gone := spark_gone(error)) is not None:
                raise gone from error
            raise
        self._host = host
        return heir

    def _watch(self) -> tuple[int, int] | None:
        """Wait for another driver of this job before Spark is started; on the local host, the driver itself waits. A standby waits
        when its host has started.
        """
        fences = Fences(self._store.disk, self._store.folder, self._clock, RealProcesses())
        fences.tell, fences.sleep = self.note, self._stop.sleep
        if self._options.mode.on_spark and self.started is None and self._standby is None:
            fences.wait(self.settings.lease, self._options.take_over)
        return fences.silent

    def _start_host(self) -> Host:
        options = self._options
        if not options.mode.on_spark:
            return LocalHost(self._store.disk, clock=self._clock, has_pulse=True)
        waits = self._standby is not None and self.started is None  # the holder writes the job's log
        folder_log = self._standby.spark_log if self._standby is not None and waits else self._store.folder / SPARK_LOG
        log = None if options.spark_log else folder_log
        return start_spark_host(
            self._graph,
            options.root,
            options.master,
            log,
            options.module_folder,
            self._clock,
            self._stop.check,
            options.mode is Mode.LIVE,
            options.queryable_latest,
        )

    def _epochs(self, driver: Driver) -> None:
        self._run_epochs(driver)
        while driver.run_epoch(last=True) is not None:
            """Complete the epochs in progress."""

    def _run_epochs(self, driver: Driver) -> None:
        catches_up = self._options.until_caught_up or self._options.mode is Mode.BATCH
        ends = catches_up or all(node.component.bounded for node in self._graph.sources)
        if catches_up or (ends and self._options.mode is Mode.LIVE):
            driver.end_where_input_ends()
        drains = False
        while not driver.stop_requested:
            if driver.drain_requested and not drains:
                drains = ends = True
                driver.end_where_input_ends()
            planned = self._clock.monotonic()
            if driver.is_caught_up() and not driver.unsettled():
                return
            if driver.run_epoch() is None:
                if ends and not driver.unsettled():
                    return
                # Polling a source takes an epoch, which costs more than checking the length of a file.
                pause = self.settings.checkpoint_every if driver.asks() and not ends else 0.0
                self._wait(max(IDLE_SECONDS, planned + pause - self._clock.monotonic()))
            elif not ends and not driver.behind():
                self._wait(max(0.0, planned + self.settings.checkpoint_every - self._clock.monotonic()))
            driver.attend()

    def _wait(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self.stopping and (left := until - self._clock.monotonic()) > 0:
            if self._holder is not None:
                self._holder.attend()
            if self._host is not None:
                self._host.keep_warm()
            self._stop.wait(min(left, READ_SECONDS))

    def _answer(self, ok: bool, text: str) -> None:
        self._requests.answer(ok, text, max(self._store.completed(), default=None))

    # ---- the result --------------------------------------------------------------------------------------

    @property
    def fence(self) -> int:
        """The fence of the last driver that claimed the job; 0 if none did."""
        mine = None if self._holder is None else self._holder.fences.mine
        return 0 if mine is None else mine.fence

    @property
    def checkpoint(self) -> int:
        """The newest checkpoint, also if no driver of this run has started."""
        if self.started is not None and self.driver is not None:
            return self.driver.at.epoch
        return max(self._store.completed(), default=0)

    # ---- for the supervisor and the heartbeat ------------------------------------------------------------

    @property
    def progress(self) -> int:
        return self.tally.checkpoints + (0 if self._standby is None else self._standby.reads)

    @property
    def processed(self) -> int:
        return self.tally.processed

    @property
    def stopping(self) -> bool:
        return self._requests.stop_requested

    def pause(self, seconds: float) -> None:
        """Wait between two drivers. The run keeps the job: the heartbeat continues, and a stop can be requested."""
        if self._holder is not None:
            with contextlib.suppress(OSError):
                self._holder.fences.rest()
        self._wait(seconds)

    def beat(self) -> None:
        """Show that the run is alive. Called by the heartbeat's thread."""
        if self._holder is not None:
            self._holder.beat()
        if self.driver is not None and self.driver is not self._holder:  # it is about to claim the job
            self.driver.beat()
        self._record.write()
        if self._retries and self.fence:
            self._retry_notes.check(self.fence)

    def keep_trace(self, error: Exception) -> str:
        place = self._store.folder / FAILURES
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("a", errors="backslashreplace") as file:
                file.write(f"{moment(self._clock.now())}\n{''.join(traceback.format_exception(error))}\n")
        except OSError:
            return ""
        return str(place)

    def note(self, line: str) -> None:
        self.log.note(line)
        if self._watcher is not None and not isinstance(self._watcher, LogWatcher):
            self._watcher.on_note(line)


def _check_refill(graph: Graph, names: Sequence[str]) -> None:
    known = [node.id for node in graph.sinks]
    for name in names:
        if name not in known:
            raise WrongUse(
                "SW-USAGE",
                f"--refill names {name!r}, which is not a sink of job {graph.job}",
                f"use one of: {', '.join(known)}",
            )


def _close(driver: Driver, host: Host) -> None:
    try:
        driver.close()
    finally:
        host.close()
