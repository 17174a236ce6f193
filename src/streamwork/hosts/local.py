"""The local host: the whole engine in one process, no Spark."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from streamwork.connectors.dataframe import no_spark
from streamwork.delivery.counts import Counts
from streamwork.engine import Assignment, EndKnown, Engine, Report, Schedule
from streamwork.engine.attempt import placed
from streamwork.engine.pulse import Pulse
from streamwork.epoch.host import Host
from streamwork.flow.gauge import CHANNEL_BOUND, Bound
from streamwork.job import Graph, Layout
from streamwork.world import Clock, Disk, RealClock


class LocalHost(Host):
    """Computes each epoch in this process. The engine is reused by the next epoch; after an error a new one is made."""

    name = "local"
    overlaps = False  # it computes in `collect`
    continuous = False
    bounds = True
    sizes_slices = False  # its channels are bounded instead

    def __init__(
        self,
        disk: Disk,
        schedule: Schedule | None = None,
        new_attempt: Callable[[], str] = lambda: secrets.token_hex(4),
        align: bool = True,
        clock: Clock | None = None,
        ends_known: EndKnown = EndKnown.BY_PLAN,
        bound: Bound = CHANNEL_BOUND,
        has_pulse: bool = False,
    ) -> None:
        """`clock` bounds how long a piece of a batch takes; results do not depend on it, nor on `ends_known`. With `has_pulse`,
        vital signs are written (`engine.pulse`).
        """
        self.ends_known = ends_known
        self._disk = disk
        self._schedule = schedule
        self._new_attempt = new_attempt
        self._align = align
        self._clock = clock
        self._bound = bound  # of each channel
        self._has_pulse = has_pulse
        self._pulse: Pulse | None = None
        self._engine: Engine | None = None
        self._wasted: list[Counts] = []

    @property
    def engine(self) -> Engine | None:
        """The engine that computes; None before the first epoch, and after an error."""
        return self._engine

    def open(self, graph: Graph) -> None:
        """Refuses sources that only Spark can read."""
        for node in graph.planned:
            if node.component.native() is not None:
                raise no_spark(f"source {node.id!r}")

    def submit(self, layout: Layout, works: Sequence[Assignment]) -> None:
        try:
            if self._engine is None:
                self._engine = Engine(
                    layout,
                    works,
                    self._disk,
                    self._new_attempt,
                    self._schedule,
                    self._align,
                    self._clock,
                    self._bound,
                )
                self._start_pulse(layout, works[0], self._engine)
            self._engine.submit(works)
        except Exception as error:
            raise placed(error, layout.graph, works[0].epoch) from error

    def collect(self, epoch: int, expired: Callable[[], bool]) -> Sequence[Report]:
        assert self._engine is not None
        try:
            return self._engine.collect(epoch, expired)
        except BaseException as error:
            if isinstance(error, Exception):
                self._wasted = self._engine.counted(epoch)
            self.abandon()
            raise

    def moved(self) -> bool:
        return True

    def wasted(self) -> Sequence[Counts]:
        found, self._wasted = self._wasted, []
        return found

    def abandon(self) -> None:
        self._end_pulse()
        if self._engine is not None:
            self._engine.discard()
            self._engine = None

    def read_ahead(self, layout: Layout, works: Sequence[Assignment]) -> None:
        """Nothing to do: there are no workers."""

    def keep_warm(self) -> None:
        """Nothing to do: there are no workers."""

    def close(self) -> None:
        self._end_pulse()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _start_pulse(self, layout: Layout, work: Assignment, engine: Engine) -> None:
        if self._has_pulse:
            folder, clock = Path(work.folder), self._clock or RealClock()
            self._pulse = Pulse(
                self._disk, folder, work.fence, self.name, clock, layout, engine.executors, engine.gauges
            )
            self._pulse.__enter__()

    def _end_pulse(self) -> None:
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.__exit__()
