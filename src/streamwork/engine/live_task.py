"""A task of a gang: runs its instances all the time (live mode), until a last checkpoint, a stop, or an error.

Task i runs instance i of every chain. It meets the driver in two mailboxes (`world.mailbox`):

    control          from the driver to all tasks: `Open` an epoch, close it (`Barrier`), or leave (`Leave`)
    task-I           from task I to the driver: that something `Moved` in an epoch, `Reported`, or `Failed`

An epoch in a gang:

    1  the driver opens epoch N+1: every task knows what it brings
    2  the driver issues the barrier of epoch N: each source stops at the next piece, and its checkpoint event follows
    3  checkpoint events flow with the data and are aligned. At each instance the changed records are copied and the outputs
       closed; the next epoch begins at once
    4  files are written and synced behind the flow, in a thread of their own; then the instance is reported

A task that dies or fails leaves files that no manifest names. Nothing of a gang is restored: the driver starts another one from
the last checkpoint. A barrier without a following epoch is the last: the task leaves when all its reports are sent.
"""

from __future__ import annotations

import contextlib
import secrets
import select
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from streamwork.delivery.counts import Counts
from streamwork.engine.assignment import Assignment
from streamwork.engine.attempt import placed
from streamwork.engine.claiming import Claiming
from streamwork.engine.executor import Executor
from streamwork.engine.failures import Failures
from streamwork.engine.isolated import Isolated
from streamwork.engine.pace import LONGEST_WAIT, Pace, Rest
from streamwork.engine.process import Process
from streamwork.engine.publishing import Publisher, tail_folder
from streamwork.engine.pulse import Pulse
from streamwork.engine.report import Failure, Report, Reports
from streamwork.errors import Refused
from streamwork.flow.gang_transport import GangTransport
from streamwork.flow.wiring import Place
from streamwork.job import Layout
from streamwork.world import Clock, Disk
from streamwork.world.mailbox import MailReader, MailWriter

CONTROL_SECONDS = 0.002
"""Seconds between two polls of the control mailbox."""
ROUND_SECONDS = 0.005
READ_SECONDS = 0.001
FENCE_SECONDS = 0.1
READY_SECONDS = 60.0
"""Maximum wait for isolated components, at the start."""
CONTROL = "control"


class Open(msgspec.Struct, frozen=True, tag=True):
    """An epoch is open: what it brings."""

    works: tuple[Assignment, ...]


class Barrier(msgspec.Struct, frozen=True, tag=True):
    """Close an epoch."""

    epoch: int


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Leave at once."""


class Moved(msgspec.Struct, frozen=True, tag=True):
    """Something has happened in an epoch."""

    epoch: int


class Reported(msgspec.Struct, frozen=True, tag=True):
    """The reports of one instance, or why the task has failed."""

    epoch: int
    reports: Reports


Order = Open | Barrier | Leave
News = Moved | Reported
decode_order = msgspec.json.Decoder(Order).decode
decode_news = msgspec.json.Decoder(News).decode
encode = msgspec.json.Encoder().encode


def task_box(folder: Path, task: int) -> Path:
    return folder / f"task-{task}"


def task_count(layout: Layout) -> int:
    """How many tasks a gang has."""
    return max(chain.parallelism for chain in layout.chains)


class LiveTask:
    def __init__(
        self,
        layout: Layout,
        number: int,
        works: Sequence[Assignment],
        disk: Disk,
        clock: Clock,
        folder: Path,
        is_wanted: Callable[[], bool] = lambda: True,
        packed: bytes = b"",
        loaded: Callable[[], None] = lambda: None,
    ) -> None:
        """`works` are the assignments of all tasks for the first epoch; `folder` is that of the gang. The task leaves when
        `is_wanted` returns False. `packed` is the layout for the processes of isolated components. `loaded` is called before the
        first event, when the states are loaded.
        """
        self._packed = packed
        self._loaded = loaded
        self._is_wanted = is_wanted
        self._layout = layout
        self._graph = layout.graph
        self._number = number
        self._disk = disk
        self._clock = clock
        self._folder = folder
        mine = [work for work in works if work.instance == number]
        self._job, self._fence, self._epoch = Path(works[0].folder), works[0].fence, works[0].epoch
        self._orders = MailReader(folder / CONTROL)
        self._news = MailWriter(task_box(folder, number))
        places: list[Place] = [(work.chain, work.instance) for work in mine]
        attempt = secrets.token_hex(4)
        tasks = task_count(layout)
        self._transport = GangTransport(layout, places, folder, attempt, number, tasks, clock.now)
        self._works = mine
        self._attempt = attempt
        self._executors: dict[Place, Executor | Isolated] = {}
        self._barrier = 0  # the newest epoch that is to be closed
        self._open = 0  # the newest epoch that is open
        self._leaves = False
        self._moved = 0  # the newest epoch that the driver knows to have moved
        self._records_ticks = self._graph.promise.exactly_once
        self._looked = self._fenced_at = clock.monotonic()
        self._behind: Future[None] | None = None
        self._failures: Failures | None = None  # under acknowledging
        self._claiming: Claiming | None = None  # under at-most-once
        self._reported_to: dict[Place, int] = {}
        self._publisher: Publisher | None = None  # if the driver wants changes behind the checkpoint to be readable

    def run(self) -> None:
        """Until the last checkpoint, until the driver asks to leave, or until an error, which is sent to the driver."""
        with ThreadPoolExecutor(1, "streamwork-behind") as behind, ThreadPoolExecutor(1, "streamwork-claims") as claims:
            try:
                self._set_up(behind, claims)
                with self._pulse():
                    self._work()
                self._finish_behind()
                if self._claiming is not None:
                    self._claiming.release()
                for executor in self._executors.values():
                    executor.close()
            except Exception as error:
                self._fail(error)
            finally:
                self._transport.close()
                if self._publisher is not None:
                    self._publisher.close()
                if self._failures is not None:
                    self._failures.close()
                self._orders.close()
                self._news.close()

    def _set_up(self, behind: ThreadPoolExecutor, claims: ThreadPoolExecutor) -> None:
        process = Process(self._layout, self._disk, self._clock)
        if self._graph.promise.at_most_once:  # one for all sources: the claims of a task are one file
            self._claiming = Claiming(self._write_claim, claims.submit, self._clock.monotonic)
        for work in self._works:
            place = (work.chain, work.instance)
            report = partial(self._report, place)
            if self._layout.is_isolated(work.chain):
                self._executors[place] = Isolated(
                    self._layout, work, self._attempt, self._transport, report, self._packed, self._clock
                )
                continue
            executor = process.executor(work, self._transport, lambda: self._attempt, report)
            executor.live(self._closes, lambda act: self._later(behind, act), self._check_fence)
            executor.instance.reading.claim = self._claiming
            self._executors[place] = executor
        if self._graph.promise.acknowledges:
            executors = [one for one in self._executors.values() if isinstance(one, Executor)]
            tasks, most = task_count(self._layout), self._works[0].max_attempts if self._works else 1
            self._failures = Failures(self._folder, self._number, tasks, executors, most)
        if (tails := tail_folder(self._folder)).is_dir():
            instances = [one.instance for one in self._executors.values() if isinstance(one, Executor)]
            self._publisher = Publisher(tails, self._job, instances, self._disk, self._clock)
        self._wait_for_children()
        self._begin(self._works)
        self._loaded()

    def _wait_for_children(self) -> None:
        """Isolated components drop what comes before they are ready: so nothing comes."""
        children = [one for one in self._executors.values() if isinstance(one, Isolated)]
        until = self._clock.monotonic() + READY_SECONDS
        while not all(child.is_ready for child in children) and self._clock.monotonic() < until:
            for child in children:
                child.tick(0)
                child.flush()
            self._clock.sleep(LONGEST_WAIT)

    def _pulse(self) -> Pulse:
        executors, gauges = self._executors, self._transport.gauges
        return Pulse(
            self._disk, self._job, self._fence, str(self._number), self._clock, self._layout, executors, gauges
        )

    # ---- the loop -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        pace = Pace()
        while True:
            began = self._clock.monotonic()
            self._attend(began)
            if self._leaves or self._is_over():
                return
            busy = self._transport.receive()
            busy |= self._round(began)
            if self._failures is not None:
                busy |= self._failures.pass_back()
            self._transport.flush()
            if not busy and self._claiming is not None:
                self._claiming.rest()
            self._rest(pace.rest(busy, self._clock.monotonic() - began))

    def _round(self, began: float) -> bool:
        """Every turn that is possible, those upstream first: what one instance sends, the next one processes in the same round. Of
        each source, one piece, or as many as fit into `READ_SECONDS`. After `ROUND_SECONDS`, one turn of each instance: so that
        orders, and credit for other tasks, do not wait for a slow instance to be done with all that it has.
        """
        found, now, until = False, round(self._clock.now() * 1_000_000), began + ROUND_SECONDS
        for executor in self._executors.values():
            if not self._records_ticks or isinstance(executor, Isolated):
                executor.see(now)
                if executor.tick(now):
                    found = True
                    self._move(executor)
            choices = executor.choices()
            while choices:
                ready = [choice for choice in choices if choice is not None]
                choice = ready[executor.turns % len(ready)] if ready else None  # no input waits for another to be empty
                if not executor.turn(choice):
                    break
                self._move(executor)
                found = True
                if self._clock.monotonic() >= (until if ready else began + READ_SECONDS):
                    break
                choices = executor.choices()
            if isinstance(executor, Isolated):
                executor.flush()
        return found

    def _rest(self, rest: Rest) -> None:
        """Until the next round."""
        links = [one.link for one in self._executors.values() if isinstance(one, Isolated)] if rest.ends_early else []
        if links:
            select.select([link for link in links if link is not None], [], [], rest.seconds)
        elif rest.seconds > 0:
            self._clock.sleep(rest.seconds)

    def _move(self, executor: Executor | Isolated) -> None:
        epoch = executor.epoch
        if epoch > self._moved:
            self._moved = epoch
            self._news.send(encode(Moved(epoch)))

    def _is_over(self) -> bool:
        """True if the newest epoch is closed, and every instance has reported on it."""
        return self._barrier >= self._open and all(
            self._reported_to.get(place, 0) >= self._open for place in self._executors
        )

    # ---- the driver -----------------------------------------------------------------------------------------------

    def _attend(self, now: float) -> None:
        if self._behind is not None and self._behind.done():
            self._behind.result()
            self._behind = None
        if now < self._looked + CONTROL_SECONDS:
            return
        self._looked = now
        if self._publisher is not None:
            self._publisher.publish()
        for message in self._orders.receive():
            match decode_order(message):
                case Open(works):
                    self._begin([work for work in works if work.instance == self._number])
                case Barrier(epoch):
                    self._barrier = epoch
                case Leave():
                    self._leaves = True
        if now >= self._fenced_at + FENCE_SECONDS:
            self._fenced_at = now
            self._check_fence()
            self._leaves = self._leaves or not self._is_wanted()

    def _begin(self, works: Sequence[Assignment]) -> None:
        for work in works:
            self._open = max(self._open, work.epoch)
            executor = self._executors[work.chain, work.instance]
            executor.plan(work, reads=self._layout.chains[work.chain].is_source)

    def _closes(self, epoch: int) -> bool:
        return epoch <= self._barrier

    def _later(self, thread: ThreadPoolExecutor, act: Callable[[], None]) -> None:
        """Behind the flow. An error there ends the task at its next poll."""
        before = self._behind
        if before is not None and before.done():
            before.result()

        def run() -> None:
            if before is not None and before.done():
                before.result()  # after an error nothing more is reported
            act()

        self._behind = thread.submit(run)

    def _finish_behind(self) -> None:
        if self._behind is not None:
            self._behind.result()

    def _report(self, place: Place, epoch: int, reports: Sequence[Report]) -> None:
        self._check_fence()
        self._news.send(encode(Reported(epoch, Reports(tuple(reports)))))
        self._reported_to[place] = epoch

    def _check_fence(self) -> None:
        """Refuse to go on if another driver has taken the job."""
        if self._disk.exists(self._job / "fences" / f"{self._fence + 1}.json"):
            raise Refused(
                "SW-DRIVER-FENCED",
                f"another driver has taken this job over: it holds a fence above {self._fence}",
                "let only one driver run this job; nothing was lost, the other one goes on from the last checkpoint",
            )

    def _write_claim(self, offsets: dict[str, int]) -> None:
        self._check_fence()  # the driver that has the job has seen how far this task had come
        folder = self._job / "claims"
        self._disk.make_folder(folder)
        self._disk.replace(folder / f"live-{self._fence}-{self._number}.json", msgspec.json.encode(offsets))

    def _fail(self, error: Exception) -> None:
        counts: list[Counts] = []
        epoch = max((one.epoch for one in self._executors.values()), default=self._epoch) or self._epoch
        for executor in self._executors.values():
            counts += executor.counted(epoch) if isinstance(executor, Executor) else executor.counted()
            executor.discard()
        if self._claiming is not None:
            with contextlib.suppress(Exception):  # then more is in doubt than need be
                self._claiming.release()
        failure = Failure.of(placed(error, self._graph, epoch))
        self._news.send(encode(Reported(epoch, Reports(failure=failure, counts=tuple(counts)))))
