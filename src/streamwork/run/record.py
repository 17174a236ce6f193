"""What a run records about itself while it runs, for readers such as ``status``.

    vitals/run.json    the mode, the interval, the epoch under way, the last starts and failures; rewritten with each heartbeat

It is information only: nothing depends on it. A run that has lost the job to another driver no longer writes it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from streamwork.epoch.phases import Phase
from streamwork.world import Clock, Disk

FILE = "vitals/run.json"
MOST = 20
"""The number of starts and of failures that are kept."""


class Start(msgspec.Struct, frozen=True):
    """The start of a driver."""

    fence: int
    at: float  # seconds since 1970


class Failed(msgspec.Struct, frozen=True):
    """A driver has failed."""

    fence: int
    at: float  # seconds since 1970
    error: str


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    fence: int
    mode: str
    checkpoint_every: float  # seconds
    epoch: int = 0  # under way; 0: none yet
    phase: str = ""  # the last one that was done in it
    phase_at: float | None = None  # when, in seconds since 1970
    starts: tuple[Start, ...] = ()
    failures: tuple[Failed, ...] = ()


class RunRecorder:
    """Called by a run; `write` by its heartbeat."""

    def __init__(self, disk: Disk, folder: Path, clock: Clock, mode: str, checkpoint_every: float) -> None:
        """`folder` is that of the job."""
        self._disk, self._folder, self._clock = disk, folder, clock
        self._record = RunRecord(fence=0, mode=mode, checkpoint_every=checkpoint_every)
        self._written: RunRecord | None = None
        self._newest = 0  # the newest fence that this run has held

    def started(self, fence: int) -> None:
        self._newest = fence
        starts = (*self._record.starts, Start(fence, self._clock.now()))[-MOST:]
        self._change(fence=fence, starts=starts, epoch=0, phase="", phase_at=None)
        self.write()

    def failed(self, fence: int, error: BaseException) -> None:
        self._newest = max(self._newest, fence)
        failures = (*self._record.failures, Failed(fence, self._clock.now(), str(error).partition("\n")[0]))
        self._change(failures=failures[-MOST:])
        self.write()

    def on_phase(self, phase: Phase, epoch: int) -> None:
        if epoch:
            self._change(epoch=epoch, phase=phase.value, phase_at=self._clock.now())

    def write(self) -> None:
        """Write what has changed, unless another driver has taken the job over. May be called from any thread."""
        found = self._record
        if found.fence and found is not self._written:
            with contextlib.suppress(OSError):
                if self._disk.exists(self._folder / "fences" / f"{self._newest + 1}.json"):
                    return
                self._disk.make_folder((self._folder / FILE).parent)
                self._disk.replace(self._folder / FILE, msgspec.json.encode(found))
                self._written = found

    def _change(self, **changes: object) -> None:
        self._record = msgspec.structs.replace(self._record, **changes)


def read_run(disk: Disk, folder: Path) -> RunRecord | None:
    """What the last run has recorded; None if that cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(disk.read(folder / FILE), type=RunRecord)
    return None
