"""Records every epoch of a driver in the history: its outcome, its timings and what was counted in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamwork.delivery.counts import Counts, Refusals, final_counts
from streamwork.epoch.epoch import Epoch, State
from streamwork.epoch.history.recorder import Recorder
from streamwork.epoch.history.values import Result, Row, Seconds, StateSize
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.participant import Participant
from streamwork.world import Clock

if TYPE_CHECKING:
    from streamwork.epoch.footing import Footing


SIZES_SECONDS = 10.0
"""How often, in seconds, the sizes of the states are recorded."""


class EpochRecorder(Participant):
    def __init__(self, clock: Clock, history: Recorder) -> None:
        self._clock = clock
        self._history = history
        self._sized_at = float("-inf")

    def resume(self, footing: Footing) -> Sequence[str]:
        """The driver that completed the checkpoint may have died before it recorded it; a driver that went on from it may have
        recorded epochs that this start skips.
        """
        at = footing.base
        self._history.back_to(at.epoch)
        if footing.rolled_forward:
            self._record_manifest(at, Result.ROLLED_FORWARD, footing.refused, once=False)
        elif at.epoch:
            self._record_manifest(at, Result.COMPLETED, {}, once=True)
        return ()

    def finished(self, epoch: Epoch) -> None:
        manifest = epoch.manifest
        counts = final_counts(manifest.counters, epoch.counts, epoch.refused)
        self._record(epoch, Result.COMPLETED, counts, events=manifest.events)
        if self._clock.monotonic() >= self._sized_at + SIZES_SECONDS:
            self._sized_at = self._clock.monotonic()
            self._history.state_sizes(_sizes(manifest, self._clock.now()))

    def abandoned(self, epoch: Epoch) -> None:
        if epoch.state is State.ABANDONED:  # what was discarded with it may not have been computed at all
            self._record(epoch, Result.ABANDONED, [*epoch.counts, *epoch.unreported])

    def failed(self, epoch: Epoch) -> None:
        self._record(epoch, Result.FAILED, [*epoch.counts, *epoch.unreported], note=epoch.failure)

    def close(self, unprepared: Sequence[Epoch]) -> None:
        self._history.close()

    def _record(self, epoch: Epoch, outcome: Result, counts: Sequence[Counts], events: int = 0, note: str = "") -> None:
        row = Row(
            epoch=epoch.number,
            fence=epoch.plan.fence,
            outcome=outcome,
            started=epoch.timings.started,
            seconds=Seconds(**epoch.timings.seconds),
            events=events,
            note=note,
            sinks=epoch.timings.sinks,
        )
        self._history.record(row, counts, epoch.repeated)

    def _record_manifest(self, manifest: Manifest, outcome: Result, refused: Refusals, once: bool) -> None:
        row = Row(
            epoch=manifest.epoch,
            fence=manifest.fence,
            outcome=outcome,
            started=self._clock.now(),
            events=manifest.events,
        )
        self._history.record(row, final_counts(manifest.counters, [], refused), once=once)


def _sizes(manifest: Manifest, now: float) -> list[StateSize]:
    return [
        StateSize(
            name,
            now,
            manifest.counters.get(name, {}).get("keys", 0),
            sum(ref.bytes for chain in instances.values() for ref in chain),
        )
        for name, instances in manifest.components.items()
        if instances
    ]
