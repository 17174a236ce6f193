"""Notes about events that are retried in place: without them, a run prints nothing while its checkpoint waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streamwork.delivery.retrying import Mark, marks
from streamwork.world import Disk


class RetryNotes:
    """Notes each retried event once."""

    def __init__(self, disk: Disk, folder: Path, note: Callable[[str], None]) -> None:
        """`folder` is that of the job."""
        self._disk, self._folder, self._note = disk, folder, note
        self._noted: set[tuple[str, float]] = set()

    def check(self, fence: int) -> None:
        """Note the events that the tasks of this driver have begun to retry. Never raises an OSError."""
        found = {(mark.path, mark.since): mark for mark in marks(self._disk, self._folder, fence)}
        for key, mark in found.items():
            if key not in self._noted:
                self._note(note_of(mark))
        self._noted = set(found)


def note_of(mark: Mark) -> str:
    limits = [] if mark.times is None else [f"{mark.times} retries"]
    limits += [] if mark.within is None else [f"{mark.within:g} s"]
    end = f"at most {' or '.join(limits)}, then {mark.then}" if limits else "without a limit"
    return (
        f"{mark.component}[{mark.instance}] retries an event ({end}); checkpoint {mark.epoch} waits. "
        f"The error: {mark.error}; event {mark.event}"
    )
