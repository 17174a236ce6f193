"""The watcher of ``--log-format json``: one JSON object a line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import msgspec

from streamwork.cli.output import write_json
from streamwork.epoch import Manifest, Phase, Started
from streamwork.run.job_log import Entry, shown
from streamwork.run.mode import Mode
from streamwork.run.outcome import Outcome
from streamwork.run.watcher import LogWatcher


class EntryWatcher(LogWatcher):
    """Prints the entries of the job's log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._job = ""

    def on_entry(self, entry: Entry) -> None:
        write_json(msgspec.json.encode(entry), self._stream)

    def on_starting(self, job: str, mode: Mode, root: Path) -> None:
        self._job = job
        self.on_note(f"starting ({mode.value}), root {root}")

    def on_started(self, job: str, started: Started) -> None:
        for line in started.story:
            self.on_note(line)

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        """The log's entries have it."""

    def on_note(self, line: str) -> None:
        self.on_entry(Entry(time=datetime.now(UTC), level="info", job=self._job, message=shown(line)))

    def on_end(self, outcome: Outcome) -> None:
        self.on_note(f"stopped at checkpoint {outcome.checkpoint}: {outcome.events} events in {outcome.seconds:.1f} s")

    def close(self) -> None:
        """Nothing to restore."""
