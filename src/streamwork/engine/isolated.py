"""An isolated component, as its task sees it: a process of its own behind a bounded queue (live mode, at-most-once).

It stands where an executor would: it takes items from the inputs of its instance, and puts what the child emits into the outputs.
The flow never waits for it:

    the queue is full            new events are dropped, and counted
    it raises                    `on_error` applies, as anywhere
    it dies, or one event takes  the events that it had not finished are dropped; it is restarted with the state of its last
    longer than `deadline`       checkpoint. Updates of its state since then are lost, and counted
    it is late at a barrier      its previous state files are reported for that epoch, and it is restarted. It is late after a
                                 second, or after its `deadline`, if that is longer

Time in which the task itself did not run is not held against the child (`PatientClock`).

                 READY             exit, deadline, barrier
    STARTING ────────────► RUNNING ──────────────────────► STARTING
        ▲ exit: after a pause, which doubles                   │
        └──────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from streamwork.components.times import from_microseconds
from streamwork.delivery.counts import KINDS, Counts
from streamwork.engine.assignment import Assignment
from streamwork.engine.executor import ReportTo
from streamwork.engine.isolated_link import Kind, Link, LinkClosed, Message
from streamwork.engine.latency import SinkMeter
from streamwork.engine.report import Report, Reports
from streamwork.flow.channel import Channel, CheckpointEvent, Data, Idle, Item, Watermark
from streamwork.flow.outlet import Outlet
from streamwork.flow.parcel import Kind as ParcelKind
from streamwork.flow.parcel import Wire
from streamwork.flow.transport import Transport
from streamwork.flow.wiring import Place
from streamwork.job import Layout
from streamwork.world import Clock, PatientClock

_log = logging.getLogger(__name__)
QUEUE_EVENTS = 1_000
"""Events that may be in the child or on the way to it."""
AHEAD = 2
"""Parcels that the child may have: the one that it works on, and the next one. What comes meanwhile gathers."""
BARRIER_SECONDS = 1.0
"""Shortest time after which a child that has not reported since the last checkpoint event of an epoch is late."""
LOOK_SECONDS = 0.1
"""Maximum time between two polls of the child that counts."""
LONGEST_PAUSE = 5.0


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"


class ChildProcess(Protocol):
    link: Link

    def kill(self) -> None: ...


class _Sent(NamedTuple):
    """A parcel that the child has not finished."""

    epoch: int
    events: int
    at: float


class SpawnedChild:
    """A Python process that runs `engine.isolated_child`. `name`, of its component and instance, is for `ps`."""

    def __init__(self, name: str) -> None:
        mine, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamwork.engine.isolated_child", str(theirs.fileno()), name],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self.link = Link(mine)

    def kill(self) -> None:
        self.link.close()
        self.process.kill()
        self.process.wait()


class Isolated:
    def __init__(
        self,
        layout: Layout,
        work: Assignment,
        attempt: str,
        transport: Transport,
        report: ReportTo,
        packed: bytes,
        clock: Clock,
        spawn: Callable[[str], ChildProcess] = SpawnedChild,
    ) -> None:
        """`packed` is the layout as it was sent to this task."""
        self._place: Place = (work.chain, work.instance)
        (name,) = layout.chains[work.chain].nodes
        self._node = layout.graph[name]
        self._wire = Wire(layout, rows=True)
        self._work = work
        self._attempt = attempt
        self._inputs = dict(transport.inputs(self._place))
        self._names = {channel.name: sender for sender, channel in self._inputs.items()}
        self._outputs = dict(transport.outputs(self._place))
        self._report = report
        self._packed = packed
        self._clock = PatientClock(clock, LOOK_SECONDS)
        self._barrier_seconds = max(BARRIER_SECONDS, self._node.deadline or 0.0)
        self._spawn = spawn
        self.epoch = 0
        """Of the last item that it was given."""
        self.turns = 0
        self.restarts = -1
        self.state = State.STARTING
        self._files = work.states.get(name, ())  # that hold the state of the last checkpoint
        self._open: dict[int, Assignment] = {}  # epochs that are not reported
        self._arrived: dict[int, dict[Place, CheckpointEvent]] = {}  # of epochs that are not reported
        self._due: dict[int, float] = {}  # when the child must have reported
        self._passed: dict[int, str] = {}  # the attempt whose checkpoint event was passed on
        self._watermarks: dict[Place, Watermark] = {}
        self._sent: deque[_Sent] = deque()
        self._queued = 0
        self._given: set[Place] = set()  # the senders of what waits for the child
        self._urgent = False  # True if not only events wait
        self._done_at = 0.0
        self._mine: dict[int, Counter[str]] = {}  # by epoch: what was given to this child, and what it has finished
        self._lost: dict[int, Counter[str]] = {}  # by epoch: what was dropped here, or given to earlier children
        self._pause = 0.0
        self._again_at = 0.0
        self._child: ChildProcess | None = None
        self._outlets: dict[Place, Outlet] = {}
        self._start()

    # ---- as an executor -------------------------------------------------------------------------------------------

    def plan(self, work: Assignment, reads: bool) -> None:
        self._open[work.epoch] = work
        if self.state is State.RUNNING:
            self._send(Kind.OPEN, msgspec.json.encode(work))

    def choices(self) -> Sequence[Channel]:
        return [channel for channel in self._inputs.values() if channel.items]

    def turn(self, channel: Channel | None) -> bool:
        assert channel is not None
        self.turns += 1
        sender, item = self._names[channel.name], channel.receive()
        self.epoch = max(self.epoch, item.epoch)
        if isinstance(item, CheckpointEvent):
            self._arrive(sender, item)
        elif self.state is not State.RUNNING or (isinstance(item, Data) and self._queued >= QUEUE_EVENTS):
            if isinstance(item, Data):
                self._drop(item)
        else:
            self._give(sender, item)
        self._remember(sender, item)
        return True

    def flush(self) -> None:
        """Send the child what it was given since the last call. While it is busy, events gather, so that its batches grow with its
        load.
        """
        if self._given and (self._urgent or len(self._sent) < AHEAD):
            self._send_given()
        if self._child is not None:
            with suppress(LinkClosed):  # `tick` notices it
                self._child.link.flush()

    @property
    def link(self) -> Link | None:
        """The messages of the child come here."""
        return None if self._child is None else self._child.link

    def see(self, now: int) -> None:
        """The child has a clock of its own."""

    def tick(self, now: int) -> bool:
        """Take what the child has sent, and restart it if need be."""
        found = False
        try:
            if self._child is not None:
                for message in self._child.link.receive():
                    found = True
                    self._take(message)
        except LinkClosed:
            self._restart()
        monotonic = self._clock.monotonic()
        if self._child is None and monotonic >= self._again_at:
            self._start()
        if self.state is State.RUNNING and (self._is_overdue(monotonic) or self._is_late(monotonic)):
            why = "an event took too long" if self._is_overdue(monotonic) else "it was late at a barrier"
            _log.warning("%s is restarted: %s", self._node.id, why)
            self._restart()
        for epoch in [one for one in self._due if self.state is State.STARTING]:
            self._answer(epoch)
        return found

    def counted(self) -> list[Counts]:
        name, instance = self._node.id, self._work.instance
        return [Counts.of(name, instance, self._counters(epoch, {})) for epoch in {*self._mine, *self._lost}]

    @property
    def is_busy(self) -> bool:
        """Its task never waits for it: a child that hangs is restarted (`deadline`)."""
        return False

    @property
    def waiting(self) -> int:
        return sum(len(channel.items) for channel in self._inputs.values())

    @property
    def meters(self) -> Sequence[SinkMeter]:
        """It has no sinks."""
        return ()

    @property
    def newest(self) -> None:
        """What the child is at is not known."""

    def close(self) -> None:
        self.discard()

    def discard(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    # ---- items ----------------------------------------------------------------------------------------------------

    def _give(self, sender: Place, item: Item) -> None:
        """Into what the child gets with the next `flush`."""
        self._outlets[sender].send(item)
        self._given.add(sender)
        if isinstance(item, Data):
            self._mine.setdefault(item.epoch, Counter())["sent"] += len(item)
            self._queued += len(item)
        else:
            self._urgent = True

    def _send_given(self) -> None:
        assert self._child is not None
        now = self._clock.monotonic()
        for sender in self._given:
            outlet = self._outlets[sender]
            outlet.pack()
            for parcel in outlet.ready():
                self._sent.append(_Sent(parcel.head.epoch, parcel.head.events, now))
                self._child.link.send_parcel(Kind.ITEM, parcel)
        self._given, self._urgent = set(), False

    def _remember(self, sender: Place, item: Item) -> None:
        """Where event time stands, for a child that is restarted."""
        if isinstance(item, Watermark):
            self._watermarks[sender] = Watermark(item.epoch, item.at, resumed=True)
        elif isinstance(item, Data) and len(item.advances.times):
            at = from_microseconds(int(item.advances.times[-1]))
            self._watermarks[sender] = Watermark(item.epoch, at, resumed=True)

    def _drop(self, item: Data) -> None:
        lost = self._lost.setdefault(item.epoch, Counter())
        lost["processed"] += len(item)
        lost["dropped"] += len(item)

    def _arrive(self, sender: Place, event: CheckpointEvent) -> None:
        arrived = self._arrived.setdefault(event.epoch, {})
        arrived[sender] = CheckpointEvent(event.epoch, event.attempt)  # what was dropped is counted here
        if dropped := sum(events for _, events in event.dropped):
            self._lost.setdefault(event.epoch, Counter()).update(processed=dropped, dropped=dropped)
        if self.state is State.RUNNING:
            self._give(sender, arrived[sender])
        if len(arrived) == len(self._inputs):
            self._due[event.epoch] = self._clock.monotonic() + self._barrier_seconds

    def _take(self, message: Message) -> None:
        match message.kind:
            case Kind.READY:
                self._run()
            case Kind.OUT:
                self._pass_on(message)
            case Kind.DONE:
                sent, events = self._sent.popleft(), int(message.head)
                self._queued -= events
                self._done_at = self._clock.monotonic()
                if events:
                    self._mine.setdefault(sent.epoch, Counter())["done"] += events
            case Kind.REPORT:
                self._pause = 0.0
                self._reported(int(message.head), Reports.from_json(message.content).reports[0])
            case Kind.FAILED:
                failure = Reports.from_json(message.head).failure
                _log.warning("%s is restarted: %s", self._node.id, failure and f"{failure.code} {failure.cause}")
                raise LinkClosed

    def _pass_on(self, message: Message) -> None:
        head, content = message.parcel()
        assert head.to is not None
        channel = self._outputs[head.to]
        if head.kind is ParcelKind.CHECKPOINT:
            self._passed[head.epoch] = head.attempt
            channel.send(CheckpointEvent(head.epoch, head.attempt))
        elif head.kind is ParcelKind.IDLE:
            channel.send(Idle(head.epoch, head.idle, head.is_resumed))
        else:
            for item in self._wire.unpack(head, content):
                channel.send(item)

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def _reported(self, epoch: int, report: Report) -> None:
        """The child has stored its state for an epoch."""
        if epoch not in self._open:  # it was answered without the child
            return
        self._files = report.state
        counters = self._counters(epoch, report.counters)
        self._end(epoch, msgspec.structs.replace(report, counters=counters, consumed=self._consumed(epoch)))

    def _answer(self, epoch: int) -> None:
        """Report an epoch without the child: with the state of its last checkpoint."""
        attempt = self._passed.get(epoch)
        if attempt is None:
            attempt = self._attempt
            for channel in self._outputs.values():
                channel.send(CheckpointEvent(epoch, attempt))
        self._end(
            epoch,
            Report(
                self._node.id,
                self._work.instance,
                attempt,
                self._counters(epoch, {}),
                state=self._files,
                consumed=self._consumed(epoch),
            ),
        )

    def _end(self, epoch: int, report: Report) -> None:
        for known in (self._open, self._arrived, self._due, self._passed, self._mine, self._lost):
            known.pop(epoch, None)
        self._report(epoch, [report])

    def _consumed(self, epoch: int) -> tuple[str, ...]:
        return tuple(sorted(event.attempt for event in self._arrived.get(epoch, {}).values()))

    def _counters(self, epoch: int, child: dict[str, int]) -> dict[str, int]:
        """What an epoch has counted: in the child, and here."""
        found = Counter({**dict.fromkeys(KINDS, 0), **child})
        found.update(self._lost.get(epoch, {}))
        if not child and (mine := self._mine.get(epoch)):
            found.update(_unfinished(mine))
        return dict(found)

    # ---- the child ------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        return self.state is State.RUNNING

    def _start(self) -> None:
        self.state = State.STARTING
        self.restarts += 1
        self._child = self._spawn(f"{self._node.id}[{self._place[1]}]")
        work = msgspec.structs.replace(
            self._work, states={self._node.id: self._files} if self._files else {}, replays=(), ticks=()
        )
        attempt = f"{self._attempt}{self.restarts or ''}"
        self._send(Kind.SETUP, b"", self._packed)
        self._send(Kind.START, msgspec.json.encode(work), attempt.encode())

    def _run(self) -> None:
        """The child is ready: it gets the epochs that are open, and the checkpoint events that have come on some inputs."""
        self.state, self._done_at = State.RUNNING, self._clock.monotonic()
        self._outlets = {sender: Outlet(self._wire, sender, self._place, "") for sender in self._inputs}
        for epoch in sorted(self._open):
            self._send(Kind.OPEN, msgspec.json.encode(self._open[epoch]))
        for sender, watermark in self._watermarks.items():
            epoch = min(self._open, default=watermark.epoch)
            self._give(sender, Watermark(epoch, watermark.at, resumed=True))
        for epoch in sorted(self._arrived):
            for sender, event in self._arrived[epoch].items():
                self._give(sender, event)

    def _is_overdue(self, now: float) -> bool:
        """True if an event takes too long."""
        deadline = self._node.deadline
        if deadline is None or not self._sent:
            return False
        first = self._sent[0]
        return now > max(first.at, self._done_at) + deadline * max(1, first.events)

    def _is_late(self, now: float) -> bool:
        return any(now > due for due in self._due.values())

    def _restart(self) -> None:
        """What it had not finished is dropped, and what it had changed since its last checkpoint is lost."""
        if self._child is not None:
            self._child.kill()
            self._child = None
        for epoch, mine in self._mine.items():
            lost = self._lost.setdefault(epoch, Counter())
            lost.update(_unfinished(mine))
            lost["lost_updates"] += mine["done"]
        self._mine.clear()
        self._sent.clear()
        self._given, self._urgent = set(), False
        self._queued = 0
        self.state = State.STARTING
        self._again_at = self._clock.monotonic() + self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause or 0.1)

    def _send(self, kind: Kind, head: bytes = b"", content: bytes = b"") -> None:
        assert self._child is not None
        self._child.link.send(kind, head, content)


def _unfinished(mine: Counter[str]) -> dict[str, int]:
    """The counters of events that a child was given and has not reported."""
    return {"processed": mine["sent"], "delivered": mine["done"], "dropped": mine["sent"] - mine["done"]}
