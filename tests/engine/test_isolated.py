"""An isolated component as its task sees it, with a child that does what the test says, and a clock that is set by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from live_jobs import Counting, Order
from streamwork import Job, ListSource, SqliteSink
from streamwork.engine import Assignment
from streamwork.engine.isolated import BARRIER_SECONDS, LOOK_SECONDS, QUEUE_EVENTS, Isolated, State
from streamwork.engine.isolated_link import Kind, LinkClosed, Message
from streamwork.engine.report import Report, Reports
from streamwork.flow.batch import Batch
from streamwork.flow.channel import CheckpointEvent, Data, Part
from streamwork.flow.parcel import Kind as ParcelKind
from streamwork.flow.transport import MemoryTransport
from streamwork.flow.wiring import upstream
from streamwork.job import Input, Layout
from streamwork.testing.clock import VirtualClock
from streamwork.world import FileRef

UP, HERE, DOWN = (0, 0), (1, 0), (2, 0)
NONE = SqliteSink("never-opened.db", "t")


class FakeChild:
    """Records what it is sent. It answers when the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.link = self
        self.got: list[tuple[Kind, Any]] = []
        self.flushed: list[int] = []  # how many messages were there at each call
        self.says: deque[Message] = deque()
        self.dead = self.killed = False

    def send(self, kind: Kind, head: bytes = b"", content: Any = b"") -> None:
        self.got.append((kind, head))

    def send_parcel(self, kind: Kind, parcel: Any) -> None:
        self.got.append((kind, parcel.head))

    def flush(self) -> None:
        self.flushed.append(len(self.got))

    def receive(self) -> Iterator[Message]:
        while self.says:
            yield self.says.popleft()
        if self.dead:
            raise LinkClosed

    def kill(self) -> None:
        self.killed = True

    def say(self, kind: Kind, head: bytes = b"", content: bytes = b"") -> None:
        self.says.append(Message(kind, head, content))

    def epochs(self) -> list[int]:
        """The epochs that were opened."""
        return [msgspec.json.decode(head)["epoch"] for kind, head in self.got if kind is Kind.OPEN]

    def checkpoints(self) -> list[int]:
        """The epochs whose checkpoint event it was given."""
        return [one.epoch for kind, one in self.got if kind is Kind.ITEM and one.kind is ParcelKind.CHECKPOINT]


class World:
    """One isolated component, its channels, its children and what it has reported."""

    def __init__(self, folder: Path, deadline: float | None = None) -> None:
        job = Job("isolating", semantics="at-most-once")
        counts = job.source(ListSource([Order(1, "a")]), id="orders").apply(
            Counting(), key="shop", id="counting", isolated=True, deadline=deadline
        )
        counts.sink(NONE, id="out")
        layout = Layout.of(job.graph(), 256, isolates=True)
        assert upstream(layout, HERE) == [UP] and layout.is_isolated(1)
        transport = MemoryTransport(layout, [UP, HERE, DOWN])
        self.clock = VirtualClock()
        self.children: list[FakeChild] = []
        self.reports: dict[int, Report] = {}
        self.input, self.output = transport.inputs(HERE)[UP], transport.outputs(HERE)[DOWN]
        work = Assignment(0, "uid", str(folder), 256, 1, 1, {}, {"counting": (state_file("old"),)}, chain=1)
        self._work = work
        self.one = Isolated(layout, work, "attempt", transport, self._report, b"layout", self.clock, self._spawn)  # type: ignore[arg-type]
        self.one.plan(work, reads=False)

    def _spawn(self, name: str) -> FakeChild:
        self.children.append(FakeChild(name))
        return self.children[-1]

    def _report(self, epoch: int, reports: Any) -> None:
        (self.reports[epoch],) = reports

    @property
    def child(self) -> FakeChild:
        return self.children[-1]

    def ready(self) -> None:
        self.child.say(Kind.READY)
        self.tick()

    def tick(self) -> None:
        self.one.tick(0)

    def passes(self, seconds: float) -> None:
        """Time in which the task runs."""
        for _ in range(round(seconds / LOOK_SECONDS * 2)):
            self.clock.sleep(LOOK_SECONDS / 2)
            self.tick()

    def send(self, count: int, epoch: int = 1) -> None:
        self._turn(events(count, epoch))

    def barrier(self, epoch: int = 1) -> None:
        self.one.plan(msgspec.structs.replace(self._work, epoch=epoch + 1), reads=False)
        self._turn(CheckpointEvent(epoch, "upstream"))

    def _turn(self, *items: Any) -> None:
        """One round of the task."""
        for item in items:
            self.input.send(item)
            assert self.one.turn(self.input)
        self.one.flush()

    def done(self, count: int) -> None:
        self.child.say(Kind.DONE, str(count).encode())
        self.tick()

    def stored(self, epoch: int, processed: int, file: str) -> None:
        counters = {"processed": processed, "delivered": processed}
        report = Report("counting", 0, "child", counters, state=(state_file(file),))
        self.child.say(Kind.REPORT, str(epoch).encode(), Reports((report,)).to_json())
        self.tick()

    def state(self, epoch: int) -> list[str]:
        return [one.path for one in self.reports[epoch].state]

    def numbers(self, epoch: int) -> dict[str, int]:
        return {kind: number for kind, number in self.reports[epoch].counters.items() if number}


def events(count: int, epoch: int = 1) -> Data:
    batch = Batch([Order(number, "a") for number in range(count)])
    return Data(epoch, (Part(Input("orders"), "counting", batch),))


def state_file(name: str) -> FileRef:
    return FileRef(name, "0" * 64, 1, 1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_a_child_does_not_take_is_dropped_and_counted(world: World) -> None:
    world.send(3)
    assert world.one.state is State.STARTING and not world.children[0].epochs(), "it has not started yet"
    world.ready()
    for _ in range(QUEUE_EVENTS // 100):
        world.send(100)
    world.send(5)
    world.done(100)
    world.send(5)
    world.stored(1, QUEUE_EVENTS + 5, "new")
    assert world.numbers(1) == {"processed": QUEUE_EVENTS + 13, "delivered": QUEUE_EVENTS + 5, "dropped": 8}
    assert world.state(1) == ["new"]


def parcels(child: FakeChild) -> list[tuple[ParcelKind, int]]:
    return [(one.kind, one.events) for kind, one in child.got if kind is Kind.ITEM]


def test_what_comes_in_one_round_leaves_together(world: World) -> None:
    world.ready()
    world._turn(events(1), events(2), events(3))
    assert parcels(world.child) == [(ParcelKind.EVENTS, 6)]
    world._turn(events(1), CheckpointEvent(1, "upstream"), events(1, epoch=2))
    assert parcels(world.child)[1:] == [(ParcelKind.EVENTS, 1), (ParcelKind.CHECKPOINT, 0), (ParcelKind.EVENTS, 1)]
    assert world.child.flushed[-2:] == [len(world.child.got) - 3, len(world.child.got)], "one flush for each round"


def test_what_comes_while_the_child_is_busy_gathers(world: World) -> None:
    """The batches of a child grow with its load."""
    world.ready()
    for count in (1, 2, 3, 4):
        world.send(count)
    assert parcels(world.child) == [(ParcelKind.EVENTS, 1), (ParcelKind.EVENTS, 2)], "one to work on, and the next"
    world.done(1)
    world.send(5)
    assert parcels(world.child)[2:] == [(ParcelKind.EVENTS, 3 + 4 + 5)]
    world._turn(CheckpointEvent(1, "upstream"))
    assert parcels(world.child)[3:] == [(ParcelKind.CHECKPOINT, 0)], "a checkpoint event does not wait"


@pytest.mark.parametrize(("deadline", "patience"), [(None, BARRIER_SECONDS), (0.2, BARRIER_SECONDS), (30.0, 30.0)])
def test_a_child_that_is_late_at_a_barrier_is_restarted_with_its_last_state(
    tmp_path: Path, deadline: float | None, patience: float
) -> None:
    world = World(tmp_path, deadline)
    world.ready()
    world.send(4)
    world.done(4)
    world.barrier()
    world.done(0)
    world.passes(patience - 0.2)
    assert len(world.children) == 1 and not world.reports
    world.passes(0.5)
    assert len(world.children) == 2 and world.children[0].killed
    assert world.state(1) == ["old"], "the files of its last checkpoint"
    assert world.numbers(1) == {"processed": 4, "delivered": 4, "lost_updates": 4}
    assert [item.epoch for item in world.output.items] == [1], "the checkpoint event goes on without it"
    world.ready()
    assert world.child.epochs() == [2] and world.child.checkpoints() == []


def test_a_task_that_stood_still_does_not_blame_the_child(tmp_path: Path) -> None:
    """As after the suspension of the whole machine."""
    world = World(tmp_path, deadline=0.5)
    world.ready()
    world.send(1)
    world.barrier()
    world.clock.sleep(60.0)
    world.tick()
    world.passes(0.2)
    assert len(world.children) == 1, "neither late nor overdue"
    world.done(1)
    world.stored(1, 1, "new")
    assert world.state(1) == ["new"]


def test_without_the_patient_clock_the_same_test_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamwork.engine.isolated.LOOK_SECONDS", float("inf"))
    with pytest.raises(AssertionError, match="neither late nor overdue"):
        test_a_task_that_stood_still_does_not_blame_the_child(tmp_path)


def test_the_deadline_counts_for_each_event_of_a_batch(tmp_path: Path) -> None:
    world = World(tmp_path, deadline=0.4)
    world.ready()
    world.send(3)
    world.passes(1.0)
    assert len(world.children) == 1, "three events may take three times as long"
    world.passes(0.5)
    assert len(world.children) == 2
    world.barrier()
    world.tick()
    assert world.numbers(1) == {"processed": 3, "dropped": 3}


def test_a_child_that_keeps_dying_is_restarted_with_growing_pauses(world: World) -> None:
    pauses = []
    for number in range(1, 10):
        world.child.dead = True
        world.tick()
        began = world.clock.monotonic()
        while len(world.children) == number:
            world.passes(LOOK_SECONDS)
        pauses.append(round(world.clock.monotonic() - began, 1))
    assert pauses == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0], abs=0.15)
    world.ready()
    world.barrier()
    world.stored(1, 0, "new")
    world.child.dead = True
    world.tick()
    world.passes(LOOK_SECONDS)
    assert len(world.children) == 11, "a checkpoint ends the pauses"


def test_a_child_that_starts_in_the_middle_gets_the_open_epochs_and_the_checkpoint_events_that_have_come(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.ready()
    world.send(2)
    world.child.dead = True
    world.tick()
    world.passes(1.0)
    assert len(world.children) == 2
    world.ready()
    assert world.child.epochs() == [1]
    world.barrier()
    assert world.child.checkpoints() == [1] and not world.reports, "it may answer this one itself"
    world.stored(1, 0, "new")
    assert world.numbers(1) == {"processed": 2, "dropped": 2} and world.state(1) == ["new"]


def test_while_a_child_starts_epochs_are_reported_without_it(world: World) -> None:
    world.send(1)
    world.barrier()
    world.tick()
    assert world.state(1) == ["old"] and world.numbers(1) == {"processed": 1, "dropped": 1}
