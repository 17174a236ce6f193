"""`Watcher`: the observer of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from streamwork.epoch import Manifest, Phase, Started
from streamwork.run.mode import Mode
from streamwork.run.outcome import Outcome


class Watcher(Protocol):
    """Shows a run to somebody: starts, steps, remarks, the end. After a restart, `on_started` comes again."""

    def on_starting(self, job: str, mode: Mode, root: Path) -> None: ...

    def on_started(self, job: str, started: Started) -> None: ...

    def on_phase(self, step: Phase, epoch: int, manifest: Manifest | None) -> None: ...

    def on_note(self, line: str) -> None:
        """Something that a person may want to know: a restart, a wait."""

    def on_end(self, outcome: Outcome) -> None: ...

    def close(self) -> None:
        """Called however the run ended."""
