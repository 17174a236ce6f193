"""`Watcher`: the observer of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from streamwork.epoch import Manifest, Phase, Started
from streamwork.run.job_log import Entry
from streamwork.run.mode import Mode
from streamwork.run.outcome import Outcome


class LogWatcher(ABC):
    """A base class of watchers that take the entries of the job's log instead of notes."""

    @abstractmethod
    def on_entry(self, entry: Entry) -> None: ...


class Watcher(Protocol):
    """Observes a run: start, phases, notes, end. Each restart calls `on_started` again. `on_note` may be called by any thread."""

    def on_starting(self, job: str, mode: Mode, root: Path) -> None: ...

    def on_started(self, job: str, started: Started) -> None: ...

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None: ...

    def on_note(self, line: str) -> None:
        """A line for the operator: a restart, a wait, a retry."""

    def on_end(self, outcome: Outcome) -> None: ...

    def close(self) -> None:
        """Called at the end of the run, also after a failure."""
