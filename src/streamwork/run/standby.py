"""A standby: a run that waits until the driver of its job is gone, and then takes the job over by an ordinary start.

1. It starts its host: on Spark, a Spark of its own and the Python workers.
2. It watches the newest fence, on its own clock, and meanwhile reads the newest checkpoint ahead (`run.read_ahead`).
3. When the holder is gone, it starts a driver, which claims the next fence only if no other driver has (`Fences.heir_of`). If
   another standby was faster, it goes on at 2.

The state of the newest fence, and what a standby does (`judge`):

    no fence                                                         take over
    at the first look: a run that has ended                          take over: to start a standby is to start the job
    a run of this very process, which starts again                   take over
    the run has ended, by `streamwork stop` or with its input        end: the job is to stop, or is done
    the run has ended, by a signal to its process or by a failure    take over: its process was to stop, not the job
    its process is certainly gone                                    take over
    its counter stands still for the lease                           take over
    otherwise                                                        wait

Time in which this process itself did not run (it was suspended) does not count towards the lease.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from streamwork.epoch import Host, Store
from streamwork.epoch.fences import End, Fence, Fences, HolderState, Sign
from streamwork.errors import Refused, WrongUse
from streamwork.hosts.spark_life import move_log
from streamwork.job import Graph
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.read_ahead import ReadAhead, pause_after
from streamwork.run.standbys import Place
from streamwork.run.stopping import Stop, Stopped
from streamwork.world import Clock, RealProcesses

POLL_SECONDS = 0.1
LONGEST_POLL = 1.0
"""Maximum of the time between two looks that counts towards the lease."""
NOTE_SECONDS = 60.0
"""Time between two notes about the wait, unless it waits for another driver."""


SPARK_LOG = "spark.log"
"""In the job's folder: the output of the Spark of its driver."""


class LostRace(Exception):
    """Another driver has taken the job over at the same time."""


def is_lost_race(error: BaseException) -> bool:
    """True if a start that has not claimed the job was refused because of another driver, which has, or creates its folder."""
    return isinstance(error, Refused) and error.code.startswith("SW-DRIVER-")


class Move(Enum):
    WAIT = "wait"
    TAKE_OVER = "take over"
    END = "end"


@dataclass(frozen=True)
class Heir:
    """A standby that takes over: the fence that it has watched (0: none), and its count if it stood still."""

    of: int
    silent: tuple[int, int] | None


def judge(sign: Sign | None, first: bool, still: float, lease: float) -> tuple[Move, str]:
    """What to do, and why. `first`: at the first look. `still`: seconds for which the counter was seen to stand still."""
    if sign is None:
        return Move.TAKE_OVER, "no driver holds this job"
    process, beat = sign.fence.process, sign.beat
    if beat.phase is not HolderState.RUNNING and sign.own:
        return Move.TAKE_OVER, "it starts again"
    if beat.phase is HolderState.ENDED and beat.end is not None:
        if first:
            return Move.TAKE_OVER, f"{process} has ended"
        match beat.end:
            case End.STOPPED:
                return Move.END, "the job was stopped by request"
            case End.FINISHED:
                return Move.END, f"the job is finished: {process} has processed its input"
            case End.SIGNALLED:
                return Move.TAKE_OVER, f"{process} was stopped by a signal"
            case End.FAILED:
                return Move.TAKE_OVER, f"{process} has failed"
    if sign.gone:
        return Move.TAKE_OVER, f"{process} was killed or has crashed"
    patience = max(lease, sign.fence.lease)  # a holder with a longer lease beats less often
    if still >= patience:
        return Move.TAKE_OVER, f"{process} has given no sign of life for {patience:g} s"
    return Move.WAIT, ""


class Stillness:
    """How long the counter of the newest fence has been seen to stand still."""

    def __init__(self) -> None:
        self._seen: tuple[int, int, HolderState] | None = None
        self._looked = 0.0
        self._still = 0.0

    def look(self, sign: Sign | None, now: float) -> float:
        seen = None if sign is None else (sign.fence.fence, sign.beat.count, sign.beat.phase)
        passed, self._looked = min(now - self._looked, LONGEST_POLL), now
        self._still = self._still + passed if seen == self._seen else 0.0
        self._seen = seen
        return self._still


class Standby:
    def __init__(
        self,
        fences: Fences,
        place: Place,
        ahead: ReadAhead,
        host: Host,
        clock: Clock,
        stop: Stop,
        note: Callable[[str], None],
    ) -> None:
        self._fences = fences
        self._place = place
        self._ahead = ahead
        self._host = host
        self._clock = clock
        self._stop = stop
        self._note = note
        self._reading: Future[None] | None = None
        self._read_at = float("-inf")  # when the last read began
        self._next_read = float("-inf")
        self._next_note = float("-inf")
        self._noted: tuple[int, bool] | None = None  # the fence of the last note, and whether a checkpoint was read

    def wait(self, lease: float, first: bool = True) -> Heir:
        """Return when the job is to be taken over. Raises `Stopped` if this standby, or the job, is to stop; and what
        `ReadAhead.read` and the host raise. `first` is False after a lost race.
        """
        reader = ThreadPoolExecutor(
            1, "streamwork-read-ahead"
        )  # of ordinary priority: a takeover may wait for its Spark job
        try:
            return self._watch(lease, first, reader)
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is raised
                self._host.abandon()  # what it reads ahead
            raise
        finally:
            self._ahead.close()
            reader.shutdown(wait=False)

    def _watch(self, lease: float, first: bool, reader: ThreadPoolExecutor) -> Heir:
        stillness = Stillness()
        while True:
            sign = self._fences.look()
            still = stillness.look(sign, self._clock.monotonic())
            move, why = judge(sign, first, still, lease)
            first = False
            if move is Move.TAKE_OVER:
                self._note(f"standby: taking over: {why}")
                return Heir(0, None) if sign is None else Heir(sign.fence.fence, (sign.fence.fence, sign.beat.count))
            assert sign is not None, "without a fence there is nothing to wait for"
            if move is Move.WAIT and self._stop.asked:
                move, why = Move.END, f"stopped by a signal while it waited; {sign.fence.process} holds the job"
            if move is Move.WAIT and self._place.asked_to_end():
                move, why = Move.END, "stopped by request while it waited"
            if move is Move.END:
                self._note(f"standby: {why}; this standby ends")
                raise Stopped
            self._read(reader)
            self._place.write(sign.fence.fence, self._ahead.checkpoint)
            self._tell(sign.fence)
            self._host.keep_warm()
            self._stop.wait(min(POLL_SECONDS, lease / 10))

    def _read(self, reader: ThreadPoolExecutor) -> None:
        """Begin a read that is due, in its thread; take note of one that has ended."""
        now = self._clock.monotonic()
        if self._reading is not None and self._reading.done():
            ended, self._reading = self._reading, None
            self._next_read = now + pause_after(now - self._read_at, self._ahead.reads)
            ended.result()
        if self._reading is None and now >= self._next_read:
            self._read_at = now
            self._reading = reader.submit(self._ahead.read)

    def _tell(self, watched: Fence) -> None:
        now, checkpoint = self._clock.monotonic(), self._ahead.checkpoint
        key = watched.fence, checkpoint is not None
        if key == self._noted and now < self._next_note:
            return
        self._noted, self._next_note = key, now + NOTE_SECONDS
        read = "" if checkpoint is None else f", checkpoint {checkpoint} read"
        self._note(f"standby: watching fence {watched.fence} of {watched.process}{read}")


class StandbyRun:
    """What a run does as a standby: `run.drivers` waits here before its first driver, and again after a lost race."""

    def __init__(
        self, graph: Graph, store: Store, lease: float, clock: Clock, stop: Stop, note: Callable[[str], None]
    ) -> None:
        self.reads = 0  # checkpoints that were read ahead
        self.asked_to_end = False  # by `streamwork stop`, at the moment of the takeover
        self._graph = graph
        self._store = store
        self._lease = lease
        self._clock = clock
        self._stop = stop
        self._note = note
        self._processes = RealProcesses()
        self._place = Place(store.disk, store.folder, clock, self._processes)
        self._first = True

    @property
    def spark_log(self) -> Path:
        """The output of Spark, as long as another driver writes that of the job."""
        return self._place.spark_log

    def wait(self, host: Host) -> Heir:
        """As `Standby.wait`. The host is open; it is closed if this raises."""
        first, self._first = self._first, False
        fences = Fences(self._store.disk, self._store.folder, self._clock, self._processes)
        ahead = ReadAhead(self._graph, self._store, fences.starts, host, self._note)
        self._place.enter()
        try:
            standby = Standby(fences, self._place, ahead, host, self._clock, self._stop, self._note)
            return standby.wait(self._lease, first)
        except BaseException:
            self._place.leave()
            with contextlib.suppress(Exception):  # the first error is raised
                host.close()
            raise
        finally:
            self.reads += ahead.reads

    def took_over(self) -> None:
        """The driver has started, and this run is no longer a standby."""
        if self._place.asked_to_end():
            self.asked_to_end = self._stop.asked = True
        if self._place.spark_log.exists():
            move_log(self._store.folder / SPARK_LOG)
        self._place.leave()


def check_standby(options: RunOptions) -> None:
    """Refuse options that have no meaning for a run that may start at any time."""
    if not options.standby:
        return
    clashing = {
        "--take-over": options.take_over,
        "--mode batch": options.mode is Mode.BATCH,
        "--from": options.from_ is not None,
        "--drop-state": bool(options.drop_state),
        "--refill": bool(options.refill),
        "--change-semantics": options.change_semantics,
    }
    for option, given in clashing.items():
        if given:
            raise WrongUse(
                "SW-USAGE",
                f"--standby and {option} exclude each other: a standby starts the job when its driver is gone, which may be "
                "at any time",
                f"start the job once with {option}, and its standby without it",
            )
