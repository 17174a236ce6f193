"""How long the steps of each epoch take, for `history.sqlite`."""

from __future__ import annotations

from streamwork.epoch.history import Recorder, Result, Row, Seconds
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.steps import Step
from streamwork.world import Clock


class Stopwatch:
    """Several epochs may be under way; each has laps of its own."""

    def __init__(self, clock: Clock, history: Recorder) -> None:
        self._clock = clock
        self._history = history
        self._begun: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._laps: dict[int, dict[str, float]] = {}

    def begin(self, epoch: int) -> None:
        self._begun[epoch], self._last[epoch], self._laps[epoch] = self._clock.now(), self._clock.monotonic(), {}

    def lap(self, epoch: int, step: Step) -> None:
        """A step of an epoch is done: it took the time since the step before it was."""
        now = self._clock.monotonic()
        laps = self._laps.setdefault(epoch, {})
        laps[step.value] = laps.get(step.value, 0.0) + now - self._last.get(epoch, now)
        self._last[epoch] = now

    def completed(self, manifest: Manifest) -> None:
        self._record(manifest.epoch, manifest.fence, Result.COMPLETED, manifest.events)

    def rolled_forward(self, manifest: Manifest) -> None:
        self._record(manifest.epoch, manifest.fence, Result.ROLLED_FORWARD, manifest.events)

    def abandoned(self, plan: Plan) -> None:
        self._record(plan.epoch, plan.fence, Result.ABANDONED, 0)

    def close(self) -> None:
        self._history.close()

    def _record(self, epoch: int, fence: int, outcome: Result, events: int) -> None:
        row = Row(
            epoch=epoch,
            fence=fence,
            outcome=outcome,
            started=self._begun.get(epoch, self._clock.now()),
            seconds=Seconds(**self._laps.get(epoch, {})),
            events=events,
        )
        self._history.record(row)
        for known in [number for number in self._laps if number <= epoch]:
            del self._begun[known], self._last[known], self._laps[known]
