"""How long the steps of each epoch take, and what was counted in it, for `history.sqlite`."""

from __future__ import annotations

from collections.abc import Sequence

from streamwork.delivery.counts import Counts, Refusals, settled
from streamwork.engine import Report
from streamwork.epoch.history.history import Recorder, Result, Row, Seconds
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.phases import Phase
from streamwork.world import Clock


class Stopwatch:
    """Several epochs may be under way; each has laps and counts of its own."""

    def __init__(self, clock: Clock, history: Recorder) -> None:
        self._clock = clock
        self._history = history
        self._begun: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._laps: dict[int, dict[str, float]] = {}
        self._told: dict[int, list[Counts]] = {}
        self._wasted: dict[int, list[Counts]] = {}

    def begin(self, epoch: int) -> None:
        self._begun[epoch], self._last[epoch], self._laps[epoch] = self._clock.now(), self._clock.monotonic(), {}

    def lap(self, epoch: int, step: Phase) -> None:
        """A step of an epoch is done: it took the time since the step before it was."""
        now = self._clock.monotonic()
        laps = self._laps.setdefault(epoch, {})
        laps[step.value] = laps.get(step.value, 0.0) + now - self._last.get(epoch, now)
        self._last[epoch] = now

    def reported(self, epoch: int, reports: Sequence[Report]) -> None:
        """What the instances have counted. If they reported before, that was in vain."""
        self._wasted.setdefault(epoch, []).extend(self._told.get(epoch, ()))
        self._told[epoch] = [Counts.of(report.component, report.instance, report.counters) for report in reports]

    def idle(self, plan: Plan) -> None:
        """Nothing has happened in that epoch, so there is nothing to tell of it."""
        self._forget(plan.epoch)

    def completed(self, manifest: Manifest, refused: Refusals) -> None:
        """`refused` are the rows that sinks did not take at the commit."""
        told = settled(manifest.counters, self._told.pop(manifest.epoch, []), refused)
        self._record(manifest.epoch, manifest.fence, Result.COMPLETED, manifest.events, told)

    def rolled_forward(self, manifest: Manifest, refused: Refusals) -> None:
        self._history.back_to(manifest.epoch)
        told = settled(manifest.counters, [], refused)
        self._record(manifest.epoch, manifest.fence, Result.ROLLED_FORWARD, manifest.events, told)

    def resumed(self, manifest: Manifest) -> None:
        """Whoever completed it may have died before it could say so; whoever went on from it, in vain, may have said so."""
        self._history.back_to(manifest.epoch)
        if manifest.epoch:
            told = settled(manifest.counters, [], {})
            self._record(manifest.epoch, manifest.fence, Result.COMPLETED, manifest.events, told, once=True)

    def abandoned(self, plan: Plan, counted: Sequence[Counts]) -> None:
        """`counted`: as far as the host knows."""
        self._record(plan.epoch, plan.fence, Result.ABANDONED, 0, [*self._told.get(plan.epoch, ()), *counted])

    def failed(self, plan: Plan, counted: Sequence[Counts], why: str) -> None:
        self._record(plan.epoch, plan.fence, Result.FAILED, 0, [*self._told.get(plan.epoch, ()), *counted], why)

    def close(self) -> None:
        self._history.close()

    def _record(
        self,
        epoch: int,
        fence: int,
        outcome: Result,
        events: int,
        counts: Sequence[Counts],
        note: str = "",
        once: bool = False,
    ) -> None:
        row = Row(
            epoch=epoch,
            fence=fence,
            outcome=outcome,
            started=self._begun.get(epoch, self._clock.now()),
            seconds=Seconds(**self._laps.get(epoch, {})),
            events=events,
            note=note,
        )
        self._history.record(row, counts, self._wasted.get(epoch, []), once)
        self._forget(epoch)

    def _forget(self, epoch: int) -> None:
        for kept in (self._begun, self._last, self._laps, self._told, self._wasted):
            for known in [number for number in kept if number <= epoch]:
                del kept[known]
