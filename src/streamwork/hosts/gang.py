"""The live host: a gang of long-running tasks, each with its instances of every chain (`engine.live_task`).

`submit` opens an epoch, `collect` issues its barrier and waits for the reports. The first epoch of a gang launches it. Driver and
tasks meet in files below `exchange/FENCE/GANG/`: there is no port to guard. A task that is lost ends the gang, and with it this
driver: the next driver of the run starts another gang on the same Spark.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from streamwork.delivery.counts import Counts
from streamwork.engine import Abandoned, Assignment, EndKnown, Report
from streamwork.engine.live_task import (
    CONTROL,
    Barrier,
    Leave,
    Moved,
    Open,
    Order,
    Reported,
    decode_news,
    encode,
    task_box,
    task_count,
)
from streamwork.engine.publishing import tail_folder
from streamwork.epoch.host import Host
from streamwork.errors import StreamworkError, WorkerLost
from streamwork.hosts.spark_life import KEEP_WARM_SECONDS
from streamwork.job import Graph, Layout
from streamwork.world import Clock, RealClock
from streamwork.world.mailbox import MailReader, MailWriter

POLL_SECONDS = 0.002
LEAVE_SECONDS = 10.0
"""Maximum wait, in seconds, for tasks to leave."""


class Launcher(Protocol):
    """Starts the tasks of a gang, somewhere."""

    def check(self, graph: Graph, tasks: int) -> None:
        """Refuse a job that cannot run here."""

    def launch(self, layout: Layout, works: Sequence[Assignment], folder: Path) -> Future[None]:
        """Start all tasks (`LiveTask.run`). The future is done when all have ended, and raises if one was lost."""

    def warm(self, layout: Layout, works: Sequence[Assignment]) -> None:
        """Start the processes that the tasks of a gang will run in, and let them import what the job needs. Waits for it."""

    def cancel(self) -> None:
        """End tasks that have not left by themselves."""

    def close(self) -> None: ...


class _Gang:
    """The tasks that run now, and what the driver knows of them."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        tasks = task_count(layout)
        self.expected = sum(node.parallelism for node in layout.graph.nodes)  # reports of each epoch
        self.folder = folder
        self.orders = MailWriter(folder / CONTROL)
        self.boxes = [MailReader(task_box(folder, number)) for number in range(tasks)]
        self.ended: Future[None]
        self.opened: list[int] = []  # epochs that were submitted and not collected
        self.reports: dict[int, list[Report]] = {}
        self.moved = 0
        self.failure: Reported | None = None

    def send(self, order: Order) -> None:
        self.orders.send(encode(order))

    def receive(self) -> None:
        for box in self.boxes:
            for message in box.receive():
                match decode_news(message):
                    case Moved(epoch):
                        self.moved = max(self.moved, epoch)
                    case Reported(epoch, reports) as news:
                        if reports.failure is not None:
                            self.failure = self.failure or news
                        self.reports.setdefault(epoch, []).extend(reports.reports)

    def close(self) -> None:
        self.orders.close()
        for box in self.boxes:
            box.close()


class GangHost(Host):
    name = "live"
    overlaps = False
    continuous = True
    ends_known = EndKnown.BY_REPORT
    bounds = True
    sizes_slices = False

    def __init__(self, launcher: Launcher, clock: Clock | None = None, publishes: bool = False) -> None:
        """`publishes`: changes behind the newest checkpoint can be asked for (`engine.publishing`)."""
        self._launcher = launcher
        self._publishes = publishes
        self._tails: Path | None = None  # of the newest gang
        self._clock = clock or RealClock()
        self._gang: _Gang | None = None
        self._gangs = 0
        self._wasted: list[Counts] = []
        self._warm: tuple[Layout, Sequence[Assignment]] | None = None  # processes that wait for a gang
        self._warmed_at = float("inf")  # while they are started, too

    def open(self, graph: Graph) -> None:
        self._launcher.check(graph, max(node.parallelism for node in graph.nodes))

    def submit(self, layout: Layout, works: Sequence[Assignment]) -> None:
        epoch = works[0].epoch
        if self._gang is not None and epoch <= max(self._gang.opened, default=0):  # it is computed again
            self.abandon()
        if self._gang is None:
            self._gang = self._launched(layout, works)
        else:
            self._gang.send(Open(tuple(works)))
        self._gang.opened.append(epoch)

    def _launched(self, layout: Layout, works: Sequence[Assignment]) -> _Gang:
        first = works[0]
        exchange = Path(first.folder) / "exchange"
        self._remove_older(exchange, first.fence)
        while (folder := exchange / str(first.fence) / str(self._gangs)).exists():
            self._gangs += 1
        self._remove_tails()
        if self._publishes:
            self._tails = tail_folder(folder)
            self._tails.mkdir(parents=True)
        gang = _Gang(folder, layout)
        gang.ended = self._launcher.launch(layout, works, folder)
        self._gangs += 1
        return gang

    @staticmethod
    def _remove_older(exchange: Path, fence: int) -> None:
        """Nothing of an earlier gang counts."""
        for one in exchange.iterdir() if exchange.is_dir() else ():
            if one.name.isdigit() and int(one.name) < fence:
                shutil.rmtree(one, ignore_errors=True)

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        gang = self._gang
        assert gang is not None and gang.opened[0] == epoch, (
            "epochs are collected in the order in which they were submitted"
        )
        gang.send(Barrier(epoch))
        try:
            while not self._is_complete(gang, epoch):
                if expired():
                    raise Abandoned(epoch)
                self._clock.sleep(POLL_SECONDS)
        except BaseException:
            self.abandon()
            raise
        gang.opened.remove(epoch)
        found = gang.reports.pop(epoch)
        if not gang.opened:  # it was the last
            self._end()
        return found

    def _is_complete(self, gang: _Gang, epoch: int) -> bool:
        over = gang.ended.done()  # asked before the mail is read, so that what a task sent last is not missed
        gang.receive()
        if gang.failure is not None:
            failure = gang.failure.reports.failure
            assert failure is not None
            self._wasted = list(gang.failure.reports.counts)
            raise failure.to_error()
        if len(gang.reports.get(epoch, ())) >= gang.expected:
            return True
        if over:
            raise _lost(gang.ended.exception())
        return False

    def moved(self) -> bool:
        gang = self._gang
        if gang is None or not gang.opened:
            return False
        gang.receive()
        return gang.moved >= gang.opened[0] or gang.failure is not None or gang.ended.done()

    def wasted(self) -> Sequence[Counts]:
        found, self._wasted = self._wasted, []
        return found

    def abandon(self) -> None:
        if self._gang is not None:
            with contextlib.suppress(OSError):
                self._gang.send(Leave())
            self._end()

    def _end(self) -> None:
        """Wait until the tasks have left; cancel them if they do not."""
        gang, self._gang = self._gang, None
        assert gang is not None
        until = self._clock.monotonic() + LEAVE_SECONDS
        while not gang.ended.done():
            if self._clock.monotonic() >= until:
                self._launcher.cancel()
                with contextlib.suppress(Exception):
                    gang.ended.result(LEAVE_SECONDS)
                break
            self._clock.sleep(POLL_SECONDS)
        gang.close()
        shutil.rmtree(gang.folder, ignore_errors=True)

    def read_ahead(self, layout: Layout, works: Sequence[Assignment]) -> None:
        """Start the processes of a gang. The states are read by the gang itself: its tasks share nothing with later ones."""
        self._warmed_at = float("inf")
        self._warm = layout, works
        self._launcher.warm(layout, works)
        self._warmed_at = self._clock.monotonic()

    def keep_warm(self) -> None:
        """Use the processes that wait for a gang, every `KEEP_WARM_SECONDS`. The tasks of a gang that runs need nothing."""
        if self._gang is None and self._warm and self._clock.monotonic() >= self._warmed_at + KEEP_WARM_SECONDS:
            self.read_ahead(*self._warm)

    def _remove_tails(self) -> None:
        """Not before its last checkpoint is complete: until then, what it has published is all there is."""
        if self._tails is not None:
            shutil.rmtree(self._tails.parent, ignore_errors=True)
            self._tails = None

    def close(self) -> None:
        self.abandon()
        self._remove_tails()
        self._launcher.close()


def _lost(error: BaseException | None) -> StreamworkError:
    what = "its tasks have left" if error is None else str(error).splitlines()[0]
    return WorkerLost(
        "SW-GANG-LOST",
        f"a task of the gang was lost: {what}",
        "nothing to do, if the job restarts: it goes on from the last checkpoint. If it happens again, read spark.log in the "
        "job's folder",
    )
