"""One attempt at one epoch by one instance: restore, receive, process, write, report.

The numbers are those of the epoch's steps (`streamwork.epoch.driver`); an attempt is steps 2 and 3.

    2a  the state of the epoch's start is taken from the worker's cache, else from its files
    2b  the slice of every source partition, or what the instances upstream have sent, passes the chain
    2c  changed records and staged outputs are written under names that hold fence and attempt, and made durable
    3   the report names these files; only a manifest that repeats it makes them count

A crash or an error before 3 leaves files that no manifest names. The cache has no entry then: it was taken out at 2a, and is put
back only after 2c.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from streamwork.delivery.retrying import LOOK_SECONDS
from streamwork.engine.assignment import Assignment
from streamwork.engine.chain import Chain
from streamwork.engine.executor import Executor
from streamwork.engine.instance import row_format
from streamwork.engine.process import Process
from streamwork.engine.reading import Read
from streamwork.engine.report import Failure, Report, Reports
from streamwork.errors import JobFailed, StreamworkError, described, is_lasting, is_retryable, raised_at
from streamwork.flow.inlet import UpstreamFailed
from streamwork.flow.parcel import Head, Kind, Parcel
from streamwork.flow.transport import ParcelTransport
from streamwork.flow.wiring import Place
from streamwork.job import Graph, Layout
from streamwork.state import State, StateCache, StateFiles
from streamwork.state.rows import RowFormat
from streamwork.world import Clock, Disk, FileRef, RealClock

Beating = Callable[[Callable[[], None]], AbstractContextManager[Any]]


class Worker:
    """A process that computes attempts, one after another, and caches states and set-up operators."""

    def __init__(
        self,
        disk: Disk,
        new_attempt: Callable[[], str] = lambda: secrets.token_hex(4),
        clock: Clock | None = None,
        beating: Beating = lambda beat: contextlib.nullcontext(),
    ) -> None:
        """`beating` calls a function every second or so, in a thread of its own, inside a `with`."""
        self.disk = disk
        self.new_attempt = new_attempt
        self.clock = clock or RealClock()
        self.beating = beating
        self.states = StateCache()
        self._token = ""
        self._chains: dict[Place, Chain] = {}

    def begin(self, layout: Layout, token: str, work: Assignment) -> Attempt:
        """`token` identifies the layout: set-up operators are reused as long as it stays the same."""
        if token != self._token:
            self.close()
            self._token = token
        return Attempt(self, layout, work)

    def unread(self, work: Assignment) -> int:
        """How many rows of state this process would have to read for this work."""
        return sum(self.states.unread((work.uid, name, work.instance), chain) for name, chain in work.states.items())

    def read_ahead(self, layout: Layout, work: Assignment) -> None:
        """Read the states of an assignment into the cache. A file that is missing or damaged ends it."""
        attempt = Attempt(self, layout, work)
        for name, chain in work.states.items():
            if chain:
                state = attempt.restore(row_format(layout.graph, layout.graph[name], work.groups), chain)
                self.states.put((work.uid, name, work.instance), chain, state)

    def take_chain(self, place: Place) -> Chain | None:
        """Belongs to the caller now."""
        return self._chains.pop(place, None)

    def keep_chain(self, place: Place, chain: Chain) -> None:
        self._chains[place] = chain

    def close(self) -> None:
        for chain in self._chains.values():
            chain.close()
        self._chains.clear()


class Attempt:
    """An instance that lives for one epoch, and receives and sends parcels.

    `read` or `receive` process, `finish` reports; each gives the parcels that are to be sent. An error is reported to the driver
    too, and the instances downstream discard what was sent. After an error nothing more is processed.
    """

    def __init__(self, worker: Worker, layout: Layout, work: Assignment) -> None:
        self._worker = worker
        self._layout = layout
        self._work = work
        self._place: Place = (work.chain, work.instance)
        self._name = worker.new_attempt()
        self._executor: Executor | None = None
        self._reports: tuple[Report, ...] = ()
        self._ended = False
        self._transport = ParcelTransport(layout, self._place, self._name)

    def read(self, readers: Mapping[str, Read] | None = None) -> Iterator[Parcel]:
        """2b, of a chain that begins with a source. `readers` bring the slices of sources that cannot be read from here."""

        def steps() -> Iterator[None]:
            executor = self._ready()
            executor.instance.reading.readers = readers or {}
            while executor.choices():
                executor.turn(None)
                yield from self._wait_out(executor)
                yield

        return self._guarded(steps)

    def receive(self, parcel: Parcel) -> Iterator[Parcel]:
        """2b, of a chain behind an exchange."""

        def steps() -> Iterator[None]:
            executor = self._ready()
            for channel, item in self._transport.unpack(parcel):
                channel.send(item)
                executor.turn(channel)
                yield from self._wait_out(executor)
                yield

        return self._guarded(steps)

    def finish(self) -> Iterator[Parcel]:
        """3. The input is complete."""

        def steps() -> Iterator[None]:
            self._ready()
            self._transport.finish()
            assert self._reports, "the last checkpoint event makes the instance report"
            yield

        yield from self._guarded(steps)
        if not self._ended:
            self._keep()
            yield self._report(Reports(self._reports))

    def discard(self) -> None:
        """Close everything that is open. To be called however the attempt ended."""
        self._ended = True
        if self._executor is not None:
            self._executor.discard()

    def _guarded(self, steps: Callable[[], Iterator[None]]) -> Iterator[Parcel]:
        if self._ended:
            return
        try:
            for _ in steps():
                yield from self._transport.ready()
        except Exception as error:
            self.discard()
            yield from self._transport.failed(self._work.epoch)
            if not isinstance(error, UpstreamFailed):
                failure = Failure.of(placed(error, self._layout.graph, self._work.epoch))
                counted = self._executor.instance.counted() if self._executor is not None else []
                yield self._report(Reports(failure=failure, counts=tuple(counted)))

    def _wait_out(self, executor: Executor) -> Iterator[None]:
        """While an event waits to be retried, this process has nothing else to do."""
        if executor.waits_until is None:
            return
        clock = self._worker.clock
        with self._worker.beating(executor.refresh):
            while (until := executor.waits_until) is not None:
                if executor.choices():
                    executor.turn(None)
                    yield
                else:
                    clock.sleep(min(max(0.0, until - clock.monotonic()), LOOK_SECONDS))

    def _ready(self) -> Executor:
        """2a, when the first thing comes."""
        if self._executor is not None:
            return self._executor
        process = Process(self._layout, self._worker.disk, self._worker.clock)
        self._executor = process.executor(
            self._work,
            self._transport,
            lambda: self._name,
            self._keep_reports,
            self.restore,
            self._worker.take_chain(self._place),
        )
        self._executor.plan(self._work, reads=self._layout.chains[self._work.chain].is_source)
        return self._executor

    def restore(self, rows: RowFormat, wanted: tuple[FileRef, ...]) -> State:
        """The state in these files, taken out of the cache as far as it is there."""
        files = StateFiles(self._worker.disk, Path(self._work.folder))
        state, missing = self._worker.states.check_out((self._work.uid, rows.component, self._work.instance), wanted)
        if state is not None and rows.fits(state):
            files.catch_up(rows, missing, state)
            return state
        state = rows.new_state()
        files.load(rows, wanted, state)
        return state

    def _keep_reports(self, epoch: int, reports: Sequence[Report]) -> None:
        self._reports = tuple(reports)

    def _keep(self) -> None:
        assert self._executor is not None
        instance = self._executor.instance
        for name, state in instance.states.items():
            owner = (self._work.uid, name, self._work.instance)
            self._worker.states.put(owner, instance.refs[name], state)
        self._worker.keep_chain(self._place, instance.chain)

    def _report(self, reports: Reports) -> Parcel:
        return Parcel(Head(Kind.REPORT, self._work.epoch, self._place, self._name), reports.to_json())


def placed(error: Exception, graph: Graph, epoch: int) -> StreamworkError:
    """The error with job and epoch in it. No exception leaves the engine without a code: a full disk or a missing file is a fault
    of the environment, all else is a fault of the engine.
    """
    place = f" [job {graph.job}, epoch {epoch}]"
    if isinstance(error, StreamworkError):
        error.cause += place
        error.in_epoch = epoch
        return error
    if isinstance(error, OSError):
        action = "make room, or restore the file or folder, and start again: the last checkpoint is good"
        failure = JobFailed("SW-IO-FAILED", f"{error}{place}", action, about_setup=is_lasting(error))
    else:
        failure = JobFailed(
            "SW-ENGINE-FAILED",
            f"{described(error)}{raised_at(error)[1]}{place}",
            "start again: the last checkpoint is good. If it happens again, report it with these lines, and with the input if "
            "you can",
            retryable=is_retryable(error),
        )
    failure.in_epoch, failure.__cause__ = epoch, error
    return failure
