"""Step 3: the reports of an epoch. It is computed again where the attempts do not agree."""

from __future__ import annotations

from collections.abc import Callable

from streamwork.delivery.retrying import Watch
from streamwork.engine import Abandoned
from streamwork.epoch.agreement import disagreement, missing
from streamwork.epoch.allowance import Allowance
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.host import Host
from streamwork.epoch.phases import Phase
from streamwork.errors import JobFailed, StreamworkError
from streamwork.job import Layout, Settings
from streamwork.world import Clock

ATTEMPTS = 3
"""How often an epoch is computed whose attempts do not agree."""


class Collector:
    def __init__(
        self,
        layout: Layout,
        settings: Settings,
        host: Host,
        clock: Clock,
        retries: Watch,
        stop_requested: Callable[[], bool],
        repeat: Callable[[Epoch], None],
        tell: Callable[[Phase, int], None],
    ) -> None:
        """`retries` are the marks of tasks that retry an event. `stop_requested` is called often, and from any thread. `repeat`
        submits an epoch again, and discards the epochs that were built on it.
        """
        self._graph = layout.graph
        self._layout = layout
        self._settings = settings
        self._host = host
        self._clock = clock
        self._retries = retries
        self._retrying = any(node.retry is not None for node in layout.graph.nodes)
        self._stop_requested = stop_requested
        self._repeat = repeat
        self._tell = tell

    def collect(self, epoch: Epoch) -> None:
        """Wait until the epoch is REPORTED. Raises `Abandoned` if it is to be abandoned; after another error it is FAILED."""
        allowed = Allowance(
            self._settings.checkpoint_timeout,
            self._clock.monotonic,
            lambda: self._retrying and bool(self._retries.fresh(epoch.number)),
            self._stop_requested,
            self._retries.end if self._graph.promise.at_most_once else None,
        )
        try:
            self._agree(epoch, allowed.expired)
        except Abandoned:
            raise
        except Exception as error:
            epoch.fail(self._host.wasted(), error.code if isinstance(error, StreamworkError) else type(error).__name__)
            raise
        finally:
            self._retries.clear(epoch.number)

    def _agree(self, epoch: Epoch, expired: Callable[[], bool]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            reports = self._host.collect(epoch.number, expired)
            self._tell(Phase.COMPUTE, epoch.number)
            if lacking := missing(self._graph, reports):
                raise JobFailed(
                    "SW-EPOCH-REPORTS",
                    f"epoch {epoch.number}: not every instance reported exactly once: {lacking}",
                    "start again: the last checkpoint is good. If it comes back, it is a fault in Streamwork: report it",
                )
            epoch.report(reports)
            if not (trouble := disagreement(self._layout, reports)):
                epoch.timings.lap(Phase.COMPUTE)
                epoch.agree()
                return
            if self._graph.promise.at_most_once:  # some of it may have been written
                raise Abandoned(epoch.number)
            if attempt < ATTEMPTS:
                self._repeat(epoch)
        raise JobFailed(
            "SW-EPOCH-ATTEMPTS",
            f"epoch {epoch.number} was computed {ATTEMPTS} times, and tasks were run again each time: {trouble}",
            "look for workers that die (memory?), and start again: the last checkpoint is good",
        )
