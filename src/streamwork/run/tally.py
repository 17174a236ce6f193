"""`Tally`: what a run has counted so far."""

from __future__ import annotations

from streamwork.epoch import Driver, Manifest, Phase
from streamwork.epoch.in_doubt import InDoubt
from streamwork.run.job_log import JobLog
from streamwork.run.record import RunRecorder
from streamwork.run.watcher import Watcher


class Tally:
    """The counts of a run. Passes each phase on to the watcher."""

    def __init__(self, sources: tuple[str, ...], watcher: Watcher | None, recorder: RunRecorder, log: JobLog) -> None:
        self.checkpoints = self.events = self.dropped = self.dead_letters = self.retried = self.late = 0
        self.processed = 0  # by all components together
        self.in_doubt: dict[tuple[int, int, str], InDoubt] = {}  # by key: a restart finds the same ones again
        self._sources = sources
        self._watcher = watcher
        self._recorder = recorder
        self._log = log

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        if manifest is not None and phase is Phase.COMPLETE:
            counted = [manifest.counters[name] for name in self._sources]
            self.checkpoints += 1
            self.events += sum(counters["processed"] for counters in counted)
            for counters in manifest.counters.values():
                self.processed += counters["processed"]
                self.dropped += counters["dropped"]
                self.dead_letters += counters["dead_letters"]
                self.retried += counters.get("retried", 0)  # a manifest of an earlier version may be rolled forward
                self.late += counters.get("late", 0)
        self._recorder.on_phase(phase, epoch)
        self._log.on_phase(phase, epoch, manifest)
        if self._watcher is not None:
            self._watcher.on_phase(phase, epoch, manifest)

    def end_of(self, driver: Driver) -> None:
        """Add what no manifest contains: rows rejected at commit, and input in doubt. The driver must be closed."""
        self.dropped += driver.refusals["dropped"]
        self.dead_letters += driver.refusals["dead_letters"]
        self.in_doubt.update(((one.epoch, one.fence, one.source), one) for one in driver.in_doubt)
