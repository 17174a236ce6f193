"""The fences of a job: who may drive it. Each start takes a number that is larger than all before it.

    fences/F.json        which process took fence F, and when
    fences/F.alive       a counter that its holder rewrites as long as it lives; at the end it says so, and why (`End`)
    fences/F.start.json, F.dropped.json   what its driver started from (`epoch.start_records`)

A new driver first waits until no other driver seems to be alive (`wait`), then takes the next number (`claim`). The wait only
keeps two users from stopping each other's runs; correctness rests on the number, which every sink knows too.

What `wait` sees of the newest fence, and what it does:

    no fence; or it says that it has ended        go on
    it says that it is starting again, in this
    very process                                  go on: it is us
    its process is certainly gone                 go on
    its counter moves                             refuse (SW-DRIVER-ALIVE)
    its counter stands still for the lease        go on
    a newer fence appears meanwhile               check that one

A standby (`run.standby`) watches the holder for as long as it lives, instead of being refused. It then claims the next number
only if no other driver has claimed one since (`heir_of`), so that one of several standbys wins.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import msgspec

from streamwork.epoch.sealed import to_bytes
from streamwork.epoch.start_records import StartRecords, numbered
from streamwork.errors import Refused
from streamwork.world import Clock, Disk, Processes, ProcessId

POLL_SECONDS = 0.1
FENCE, ALIVE = ".json", ".alive"
NOBODY = ProcessId("unknown", 0, 0.0)
"""Stands for the process of a fence whose file cannot be read. It is on no host, so it never counts as gone."""


class Fence(msgspec.Struct, frozen=True):
    """One start of a driver."""

    fence: int
    process: ProcessId
    started: float
    lease: float = 0.0  # seconds: it beats more often than that


class HolderState(Enum):
    """What a holder records about itself.  RUNNING -> ENDED,  RUNNING -> ENDED -> RESTARTING -> ENDED"""

    RUNNING = "running"
    RESTARTING = "restarting"  # its driver has failed; its supervisor waits, and will take a new fence
    ENDED = "ended"


class End(Enum):
    """Why the run of a holder has ended."""

    STOPPED = "stopped"  # `streamwork stop`: the job is to stop
    FINISHED = "finished"  # its input has ended, or was caught up with
    SIGNALLED = "signalled"  # this process is to stop, by SIGTERM or Ctrl-C
    FAILED = "failed"


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sign of life."""

    count: int
    phase: HolderState
    end: End | None = None  # None: the run goes on, or has not said yet


class Sign(msgspec.Struct, frozen=True):
    """The state of the newest fence. `gone`: its process has certainly ended. `own`: it is this process."""

    fence: Fence
    beat: Beat
    gone: bool
    own: bool


class Life(Enum):
    """Whether a holder is alive, as far as is known."""

    RUNNING = "running"
    GONE = "gone"
    ENDED = "ended"
    UNKNOWN = "unknown"  # on another host, and not seen to move


class Holder(msgspec.Struct, frozen=True):
    """The driver that holds a job, as `status` shows it."""

    fence: int
    process: ProcessId
    since: float
    life: Life
    restarting: bool = False


class Fences:
    """The fences in a job's folder, and the one that is mine once I have claimed it."""

    def __init__(self, disk: Disk, folder: Path, clock: Clock, processes: Processes) -> None:
        """`folder` is that of the job."""
        self.mine: Fence | None = None
        self.tell: Callable[[str], None] | None = None  # called with a line of text about what `wait` waits for
        self.sleep: Callable[[float], None] = clock.sleep  # how `wait` passes the time; may raise to end it
        self.silent: tuple[int, int] | None = None
        """A holder that did not move while `wait` watched it, and its count: it need not be watched again."""
        self.heir_of: int | None = None
        """Of a standby: the fence that it has watched. `wait` and `claim` raise SW-DRIVER-ALIVE if there is a higher one."""
        self._disk = disk
        self._folder = folder / "fences"
        self.starts = StartRecords(disk, self._folder)
        self._clock = clock
        self._processes = processes
        self._beats = Beat(0, HolderState.ENDED)
        self._lock = threading.Lock()  # beats come from a thread of their own

    def highest(self) -> int:
        """The largest number that was ever taken, by the files that are left."""
        return max(self._numbers(FENCE) | self._numbers(ALIVE) | self.starts.numbers(), default=0)

    def newest(self) -> Fence | None:
        number = max(self._numbers(FENCE), default=None)
        return None if number is None else self._read_fence(number)

    def cut_short(self) -> int | None:
        """The newest fence, if its holder has neither ended nor said that it starts again: it was killed, or is still there."""
        number = max(self._numbers(FENCE), default=None)
        return number if number is not None and self._read_beat(number).phase is HolderState.RUNNING else None

    def lease_of(self, number: int) -> float:
        """How long the holder of a fence must be watched before it counts as dead."""
        return self._read_fence(number).lease

    def look(self) -> Sign | None:
        """The newest fence and the last beat of its holder."""
        fence = self.newest()
        if fence is None:
            return None
        gone, own = self._processes.gone(fence.process), fence.process == self._processes.me()
        return Sign(fence, self._read_beat(fence.fence), gone, own)

    # ---- taking the job over --------------------------------------------------------------------------------------

    def wait(self, lease: float, take_over: bool = False) -> None:
        """Return when no driver seems to be alive. Raises SW-DRIVER-ALIVE if one is. Writes nothing."""
        told: set[int] = set()
        self._check_heir()
        while not take_over and (holder := self.newest()) is not None and self._may_live(holder):
            count = self._read_beat(holder.fence).count
            if self.silent == (holder.fence, count):
                return
            patience = max(lease, holder.lease)  # a holder with a longer lease beats less often
            if self.tell is not None and holder.fence not in told:
                told.add(holder.fence)
                self.tell(f"{holder.process} holds this job; watching for {patience:g} s whether it is alive")
            moved = self._moves(holder, patience)
            if moved is None:
                continue  # the holder changed: check again
            if moved:
                raise _alive(holder, self._folder.parent)
            self.silent = holder.fence, count
            return

    def _may_live(self, holder: Fence) -> bool:
        phase = self._read_beat(holder.fence).phase
        own = phase is HolderState.RESTARTING and holder.process == self._processes.me()
        return not (phase is HolderState.ENDED or own or self._processes.gone(holder.process))

    def _moves(self, holder: Fence, patience: float) -> bool | None:
        """Watch so long: does its counter move? None if it ended meanwhile, or is no longer the newest."""
        first, until = self._read_beat(holder.fence), self._clock.monotonic() + patience
        while (left := until - self._clock.monotonic()) > 0:
            self.sleep(min(left, POLL_SECONDS, patience / 10))
            if max(self._numbers(FENCE), default=0) > holder.fence or not self._may_live(holder):
                return None
            if self._read_beat(holder.fence).count > first.count:
                return True
        return False

    def _check_heir(self) -> int:
        """The highest number. Raises SW-DRIVER-ALIVE if I am the heir of a lower one."""
        highest = self.highest()
        if self.heir_of is not None and highest > self.heir_of:
            raise _alive(self._read_fence(highest), self._folder.parent)
        return highest

    def claim(self, floor: int = 0, lease: float = 0.0) -> Fence:
        """Create the next fence, exclusively; above `floor`, which some sink has seen. `lease` is how long others must watch it.

        An heir raises SW-DRIVER-ALIVE if another driver has created a fence above the one that it has watched.
        """
        self._disk.make_folder(self._folder)
        number = max(self._check_heir(), floor) + 1
        while True:
            fence = Fence(number, self._processes.me(), self._clock.now(), lease)
            try:
                self._disk.create(self._path(number, FENCE), to_bytes(fence))
            except FileExistsError:
                if self.heir_of is not None:
                    raise _alive(self._read_fence(number), self._folder.parent) from None
                number += 1
                continue
            break
        self.mine, self.heir_of = fence, None
        self._mark(HolderState.RUNNING)
        return fence

    # ---- holding it -----------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Show that this driver is alive. Does nothing before `claim` and after `end`."""
        if self._beats.phase is not HolderState.ENDED:
            self._mark(self._beats.phase, unless=HolderState.ENDED)

    def rest(self) -> None:
        """After the end of a failed driver: say that its process will start again, and may beat on until then."""
        self._mark(HolderState.RESTARTING)

    def end(self, why: End | None = None) -> None:
        """Record that this driver has ended, so that the next one need not wait. `why` is given when the run ends with it."""
        self._mark(HolderState.ENDED, why=why)

    def _mark(self, phase: HolderState, unless: HolderState | None = None, why: End | None = None) -> None:
        with self._lock:
            if self.mine is None or self._beats.phase is unless:
                return
            beats = Beat(self._beats.count + 1, phase, why)
            self._beats = beats  # also if writing fails: a beat that comes too late must not undo the end
            self._disk.replace(self._path(self.mine.fence, ALIVE), msgspec.json.encode(beats) + b"\n")

    def check(self, mine: int) -> None:
        """Refuse if another driver has taken a higher fence."""
        highest = self.highest()
        if highest > mine:
            by = self._read_fence(highest).process
            who = "another driver" if by == NOBODY else str(by)
            raise Refused(
                "SW-DRIVER-FENCED",
                f"{who} has taken this job over: it holds fence {highest}, this driver fence {mine}",
                "let only one driver run this job; nothing was lost, the other one goes on from the last checkpoint",
            )

    def holder(self, watch: float = 0.0) -> Holder | None:
        """The holder of the job. One elsewhere is watched for up to `watch` seconds."""
        fence = self.newest()
        if fence is None:
            return None
        phase = self._read_beat(fence.fence).phase
        if phase is HolderState.ENDED:
            life = Life.ENDED
        elif self._processes.gone(fence.process):
            life = Life.GONE
        elif fence.process.host == self._processes.me().host or (watch > 0 and self._moves(fence, watch)):
            life = Life.RUNNING
        else:
            life = Life.UNKNOWN
        return Holder(fence.fence, fence.process, fence.started, life, phase is HolderState.RESTARTING)

    # ---- files ----------------------------------------------------------------------------------------------------

    def forget(self, below: int) -> None:
        """Remove the files of fences below a number, except those of the newest and those that dropped state."""
        keep = {self.highest(), *self.starts.dropping()}
        self._remove(ALIVE, below, keep)
        self.starts.forget(below, keep)
        self._remove(FENCE, below, keep)

    def _remove(self, suffix: str, below: int, keep: Collection[int]) -> None:
        for number in self._numbers(suffix):
            if number < below and number not in keep:
                self._disk.remove(self._path(number, suffix))

    def _read_fence(self, number: int) -> Fence:
        try:
            return msgspec.json.decode(self._disk.read(self._path(number, FENCE)), type=Fence)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return Fence(number, NOBODY, 0.0)

    def _read_beat(self, number: int) -> Beat:
        """What cannot be read is one that does not move."""
        try:
            return msgspec.json.decode(self._disk.read(self._path(number, ALIVE)), type=Beat)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return Beat(0, HolderState.RUNNING)

    def _numbers(self, suffix: str) -> set[int]:
        return numbered(self._disk, self._folder, suffix)

    def _path(self, number: int, suffix: str) -> Path:
        return self._folder / f"{number}{suffix}"


def moment(seconds: float) -> str:
    """A time as text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _alive(holder: Fence, job: Path) -> Refused:
    stop = shlex.join(["streamwork", "stop", "--root", str(job.parent), job.name])
    return Refused(
        "SW-DRIVER-ALIVE",
        f"{holder.process} runs this job since {moment(holder.started)} (fence {holder.fence}), and is alive",
        f"stop it with `{stop}`; or, if it must not be waited for, start with --take-over: it will then stop by itself",
    )
