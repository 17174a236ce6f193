"""The engine: all instances of all chains of a job in one process, connected by channels.

It does one turn at a time, chosen by a `Schedule`. With a seeded schedule a run is a function of job, input and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from streamwork.delivery.counts import Counts
from streamwork.engine.assignment import Assignment
from streamwork.engine.attempt import placed
from streamwork.engine.executor import Executor
from streamwork.engine.manager import CheckpointManager
from streamwork.engine.process import Process
from streamwork.engine.report import Report
from streamwork.errors import JobFailed
from streamwork.flow.channel import Channel
from streamwork.flow.gauge import CHANNEL_BOUND, Bound
from streamwork.flow.transport import MemoryTransport
from streamwork.job import Layout
from streamwork.world import Clock, Disk, RealClock

Choice = tuple[Executor, Channel | None]
WAIT_SECONDS = 0.05
"""How long an idle engine waits before it checks again: a stop must be noticed."""


class Schedule(Protocol):
    def choose(self, choices: Sequence[Choice]) -> Choice: ...


class Abandoned(Exception):
    """An epoch took too long, and is discarded. The next one starts from the same parent."""


class InstanceLost(Abandoned):
    """An instance is gone, and with it the epoch that it was computing."""


class InOrder:
    """Downstream first: the fewest items wait."""

    def choose(self, choices: Sequence[Choice]) -> Choice:
        return choices[-1]


class Engine:
    def __init__(
        self,
        layout: Layout,
        works: Sequence[Assignment],
        disk: Disk,
        new_attempt: Callable[[], str],
        schedule: Schedule | None = None,
        align: bool = True,
        clock: Clock | None = None,
        bound: Bound = CHANNEL_BOUND,
    ) -> None:
        """Set up every instance from the state that `works` name, before the first event."""
        self._layout = layout
        self._clock = clock or RealClock()
        self._schedule = schedule or InOrder()
        self._manager = CheckpointManager(layout.graph)
        process = Process(layout, disk, self._clock, align)
        places = [(work.chain, work.instance) for work in works]
        transport = MemoryTransport(layout, places, bound, self._clock.now)
        self.gauges = transport.gauges
        self.executors = {
            place: process.executor(work, transport, new_attempt, self._manager.report)
            for place, work in zip(places, works, strict=True)
        }

    def submit(self, works: Sequence[Assignment]) -> None:
        """Issue the next checkpoint event: each source reads its slice and then passes it on."""
        self._manager.issue(works[0].epoch)
        for work in works:
            self.executors[work.chain, work.instance].plan(work, reads=self._layout.chains[work.chain].is_source)

    def collect(self, epoch: int, expired: Callable[[], bool] = lambda: False) -> list[Report]:
        """Run until all instances have reported on an epoch. Raises `Abandoned` when its time has expired."""
        while self._manager.missing(epoch):
            if expired():
                raise Abandoned(epoch)
            if not self.turn(epoch) and not self._wait():
                missing = ", ".join(
                    f"{component}[{instance}]" for component, instance in sorted(self._manager.missing(epoch))
                )
                raise JobFailed(
                    "SW-EPOCH-REPORTS",
                    f"epoch {epoch}: nothing is left to do, but these have not reported: {missing}",
                    "start again: the last checkpoint is good. If it happens again, it is a fault in Streamwork: report it",
                )
        return self._manager.complete(epoch)

    def _wait(self) -> bool:
        """Every instance waits for another, or for an event to be retried: let a little time pass. False if none waits for time."""
        waiting = [executor for executor in self.executors.values() if executor.waits_until is not None]
        if not waiting:
            return False
        for executor in waiting:
            executor.refresh()
        until = min(executor.waits_until or 0.0 for executor in waiting)
        self._clock.sleep(min(max(0.0, until - self._clock.monotonic()), WAIT_SECONDS))
        return True

    def turn(self, epoch: int) -> bool:
        """One turn of one instance; False if none is possible."""
        choices: list[Choice] = [
            (executor, choice) for executor in self.executors.values() for choice in executor.choices()
        ]
        if not choices:
            return False
        executor, choice = self._schedule.choose(choices)
        try:
            executor.turn(choice)
        except Abandoned:
            raise
        except Exception as error:
            raise placed(error, self._layout.graph, epoch) from error
        return True

    def counted(self, epoch: int) -> list[Counts]:
        """The counters of an epoch that is abandoned: of instances that have reported, and of those that have begun."""
        reported = [Counts.of(r.component, r.instance, r.counters) for r in self._manager.reported(epoch)]
        return reported + [one for executor in self.executors.values() for one in executor.counted(epoch)]

    def close(self) -> None:
        for executor in self.executors.values():
            executor.close()

    def discard(self) -> None:
        for executor in self.executors.values():
            executor.discard()
