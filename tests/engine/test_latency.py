"""Latencies of live mode with a clock that is set by hand: what is recorded is exactly the time that passed."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from live_jobs import Counting, Doubling, Order, Waiting
from streamwork import Event, Fixed, Job, ListSource, Operator, SqliteSink, count, shuffle
from streamwork.engine import Assignment
from streamwork.engine.executor import Executor
from streamwork.engine.extent import Extent
from streamwork.engine.histogram import Histogram, merged
from streamwork.engine.isolated import Isolated
from streamwork.engine.isolated_child import Child
from streamwork.engine.isolated_link import Link
from streamwork.engine.latency import WINDOW, Recent, SinkMeter, Stopwatch
from streamwork.engine.process import Process
from streamwork.flow.channel import Data, Watermark
from streamwork.flow.gang_transport import GangTransport
from streamwork.flow.outlet import Outlet
from streamwork.flow.parcel import Head, Kind, Parcel, TimedHead, Wire
from streamwork.flow.parcel_file import FrameReader, pack
from streamwork.flow.wiring import Place
from streamwork.job import Layout
from streamwork.testing.clock import VirtualClock
from streamwork.world import RealDisk
from waiting import wait_for

SHOPS = ["a", "b", "c", "d", "e", "f"]
ORDERS = [Order(number, shop) for number, shop in enumerate(SHOPS)]


class Visit(Event):
    shop: str
    at: datetime


class Visits(Event):
    shop: str
    visits: int


class Same(Operator[Visit, Visit]):
    def apply(self, event: Visit, collector: Any) -> None:
        collector.emit(event)


class Task:
    """One task of a gang: its executors, of which the test calls each turn."""

    def __init__(self, gang: Gang, number: int, places: list[Place]) -> None:
        self.transport = GangTransport(gang.layout, places, gang.folder / "x", "a", number, 2, gang.clock.now)
        process = Process(gang.layout, RealDisk(), gang.clock)
        self.executors: dict[Place, Executor] = {}
        for place in places:
            if gang.layout.is_isolated(place[0]):
                continue
            made = process.executor(gang.work(place), self.transport, lambda: "attempt", lambda *_: None)
            made.live(lambda epoch: False, lambda act: act(), lambda: None)
            made.plan(gang.work(place), reads=place[0] == 0)
            made.set_up()
            self.executors[place] = made

    def turn(self, place: Place) -> int:
        """All turns of an instance that are possible without another one; how many they were."""
        executor, turns = self.executors[place], 0
        while (choices := executor.choices()) and executor.turn(choices[turns % len(choices)]):
            turns += 1
        return turns

    def tally(self, place: Place) -> Histogram:
        (meter,) = self.executors[place].meters
        return meter.tally.value()


class Gang:
    """The tasks of a job. They end with the test."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.layout = Layout.of(job.graph(), 256, isolates=True)
        self.folder = folder
        self.clock = VirtualClock()

    @contextmanager
    def task(self, number: int, places: list[Place]) -> Iterator[Task]:
        made = Task(self, number, places)
        try:
            yield made
        finally:
            for executor in made.executors.values():
                executor.discard()
            made.transport.close()

    def work(self, place: Place) -> Assignment:
        extents = {"orders": {"0": Extent(0, limit=100)}} if place[0] == 0 else {}
        chain, instance = place
        return Assignment(instance, "uid", str(self.folder), 256, 1, 1, extents, {}, chain=chain, continues=False)


@contextmanager
def two_tasks(folder: Path, semantics: Any) -> Iterator[tuple[Gang, Task, Task]]:
    """Source in task 0; counting and sink in both."""
    job = Job("timed", semantics=semantics)
    orders = job.source(ListSource(ORDERS), id="orders")
    counts = orders.apply(Counting(), key="shop", id="counting", parallelism=2)
    counts.sink(SqliteSink(folder / "out.db", "out"), id="out")
    gang = Gang(folder, job)
    assert [chain.nodes for chain in gang.layout.chains] == [("orders",), ("counting", "out")]
    with gang.task(0, [(0, 0), (1, 0)]) as first, gang.task(1, [(1, 1)]) as second:
        yield gang, first, second


@pytest.mark.parametrize(("semantics", "staged"), [("at-least-once", False), ("exactly-once", True)])
def test_through_memory_and_through_the_files_of_an_exchange(tmp_path: Path, semantics: str, staged: bool) -> None:
    with two_tasks(tmp_path, semantics) as (gang, first, second):
        assert first.turn((0, 0)) > 0
        gang.clock.sleep(0.25)
        first.turn((1, 0))
        gang.clock.sleep(0.5)
        first.transport.flush()
        gang.clock.sleep(0.25)
        assert second.transport.receive() and second.turn((1, 1)) > 0
        near, far = first.tally((1, 0)), second.tally((1, 1))
        assert near.events and far.events and near.events + far.events == len(ORDERS)
        assert near == Histogram().add(0.25, near.events) and far == Histogram().add(1.0, far.events)
        (meter,) = first.executors[1, 0].meters
        assert (meter.sink, meter.staged) == ("out", staged) and not first.executors[0, 0].meters


def test_control_without_the_time_of_the_source_the_way_would_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stopwatch, "start", lambda self, began=None: setattr(self, "began", self.now()))
    with two_tasks(tmp_path, "at-least-once") as (gang, first, second):
        first.turn((0, 0))
        first.transport.flush()
        gang.clock.sleep(1.0)
        second.transport.receive()
        second.turn((1, 1))
        assert second.tally((1, 1)).longest == 0.0


def test_what_a_timer_emits_counts_from_the_timer(tmp_path: Path) -> None:
    job = Job("timed", semantics="at-least-once")
    waiting = job.source(ListSource(ORDERS), id="orders").apply(Waiting(), key="shop", id="waiting", parallelism=2)
    waiting.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    gang = Gang(tmp_path, job)
    with gang.task(0, [(0, 0), (1, 0)]) as task:
        task.turn((0, 0))
        gang.clock.sleep(1.0)
        task.turn((1, 0))
        assert not task.tally((1, 0)).events, "the events wait for their timers"
        gang.clock.sleep(1.0)
        now = round(gang.clock.now() * 1_000_000)
        task.executors[1, 0].see(now)
        assert task.executors[1, 0].tick(now)
        found = task.tally((1, 0))
        assert found.events and found.longest == 0.0


@pytest.mark.parametrize("keyed_before", [False, True])
def test_what_a_window_emits_counts_from_the_event_that_closes_it(tmp_path: Path, keyed_before: bool) -> None:
    """The watermark comes between the events of an item (`Advances`), or as an item of its own."""
    job = Job("timed", semantics="at-least-once")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    visits = [Visit(f"s{second % 3}", start + timedelta(seconds=second)) for second in (0, 1, 2, 3, 60)]
    stream = job.source(ListSource(visits), id="orders", time="at")
    if keyed_before:
        stream = stream.apply(Same(), id="same", grouping=shuffle(), parallelism=2)
    visits_of = stream.window(Fixed("10s"), key="shop", time="at", id="windows").aggregate(
        Visits, visits=count(), parallelism=2
    )
    visits_of.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    gang = Gang(tmp_path, job)
    last = len(gang.layout.chains) - 1
    places = [(chain, instance) for chain in range(1, last + 1) for instance in (0, 1)]
    with gang.task(0, [(0, 0)]) as first, gang.task(1, places) as second:
        first.turn((0, 0))
        first.transport.flush()
        gang.clock.sleep(0.75)
        assert second.transport.receive()
        for place in places:
            second.turn(place)
        found = merged(second.tally((last, instance)) for instance in (0, 1))
    assert found == Histogram().add(0.75, 3)


def test_a_clock_that_is_set_back_counts_as_no_time(tmp_path: Path) -> None:
    with two_tasks(tmp_path, "at-least-once") as (gang, first, _):
        first.turn((0, 0))
        gang.clock.set_by(-5.0)
        first.turn((1, 0))
        found = first.tally((1, 0))
        assert found.events and found.seconds == found.longest == 0.0


def test_through_an_isolated_child(tmp_path: Path) -> None:
    """The child is real, in a thread, and has the clock of the machine: it passes on the time of the source as it came."""
    job = Job("timed", semantics="at-most-once")
    orders = job.source(ListSource(ORDERS), id="orders")
    alone = orders.apply(Doubling(), id="doubling", isolated=True)
    alone.apply(Doubling(), id="again").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    gang = Gang(tmp_path, job)
    assert [chain.nodes for chain in gang.layout.chains] == [("orders",), ("doubling",), ("again", "out")]
    with gang.task(0, [(0, 0), (1, 0), (2, 0)]) as task:
        packed = _packed(gang.layout)
        here = gang.work((1, 0))
        isolated = Isolated(
            gang.layout, here, "a", task.transport, lambda *_: None, packed, gang.clock, lambda name: Threaded()
        )
        isolated.plan(here, reads=False)

        def look() -> bool:
            isolated.flush()
            isolated.tick(0)
            return True

        try:
            wait_for(lambda: look() and isolated.is_ready)
            assert task.turn((0, 0)) > 0
            gang.clock.sleep(0.125)
            for channel in isolated.choices():
                isolated.turn(channel)
            gang.clock.sleep(2.0)
            wait_for(lambda: look() and task.executors[2, 0].waiting)
            gang.clock.sleep(0.5)
            wait_for(lambda: look() and task.turn((2, 0)) >= 0 and task.tally((2, 0)).events == len(ORDERS))
        finally:
            isolated.close()
        assert task.tally((2, 0)) == Histogram().add(2.625, len(ORDERS))


class Threaded:
    """The child of `Isolated`, in a thread."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        self.link, self._theirs = Link(mine), Link(theirs)
        self._child = Child(self._theirs)
        self._thread = threading.Thread(target=self._child.run)
        self._thread.start()

    def kill(self) -> None:
        self.link.close()
        self._thread.join()
        self._theirs.close()
        gc.unfreeze()  # the child has frozen what this process had loaded


def _packed(layout: Layout) -> bytes:
    from pyspark import cloudpickle

    from streamwork.job.params import pack as pack_layout

    return pack_layout(layout.graph.params, cloudpickle.dumps(layout))


# ---- parcels ----------------------------------------------------------------------------------------------------------


def sending(tmp_path: Path) -> tuple[Gang, Outlet, Data]:
    with two_tasks(tmp_path, "at-least-once") as (gang, first, _):
        first.turn((0, 0))
        (item,) = [one for one in first.transport.inputs((1, 0))[0, 0].items if isinstance(one, Data)]
    return gang, Outlet(Wire(gang.layout, rows=True), (0, 0), (1, 0), "a"), item


def test_what_is_gathered_counts_from_the_oldest(tmp_path: Path) -> None:
    _, out, item = sending(tmp_path)
    for began in (30.0, 10.0, 20.0):
        out.send(Data(1, item.parts, began=began))
    out.pack()
    (parcel,) = out.ready()
    (read,) = FrameReader().parcels(pack(parcel))
    assert isinstance(read.head, TimedHead) and read.head.began == 10.0 and read.head.events == 3 * len(item)


def test_parcels_of_the_other_modes_are_as_before(tmp_path: Path) -> None:
    gang, out, item = sending(tmp_path)
    out.send(Data(1, item.parts))
    out.pack()
    (parcel,) = out.ready()
    assert type(parcel.head) is Head and len(Head.__struct_fields__) == 15
    assert not isinstance(parcel.head, TimedHead) and len(TimedHead.__struct_fields__) == 16
    (read,) = FrameReader().parcels(pack(parcel))
    (found,) = Wire(gang.layout, rows=True).unpack(read.head, read.content)
    assert not isinstance(found, Watermark) and found.began is None
    timed = TimedHead(Kind.EVENTS, 1, (0, 0), "a", began=1.5)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(timed), type=Head).sender == (0, 0), (
        "an older reader can read it"
    )
    assert next(FrameReader().parcels(pack(Parcel(timed)))).head == timed


# ---- the last seconds -------------------------------------------------------------------------------------------------


def test_the_last_seconds_and_all_of_them() -> None:
    clock = VirtualClock()
    watch = Stopwatch(clock.now)
    meter = SinkMeter("out", False, watch)
    recent = Recent(meter, clock.monotonic())
    for second in range(30):
        watch.start()
        clock.sleep(1.0)
        meter.wrote(second)
        length, late, total = recent.read(clock.monotonic())
        assert total.events == sum(range(second + 1))
        assert length <= WINDOW + 1 and late.events == sum(range(max(0, second - round(length) + 1), second + 1))
    assert round(length) == round(WINDOW)
    clock.sleep(2 * WINDOW)
    recent.read(clock.monotonic())  # the slot under way ends here
    clock.sleep(2 * WINDOW)
    _, late, total = recent.read(clock.monotonic())
    assert late == Histogram() and total.events == sum(range(30)) and total.longest == 1.0


def test_what_is_added_while_a_tally_is_cut_is_not_lost() -> None:
    """The writer had taken the tally before: it adds to it afterwards."""
    clock = VirtualClock()
    meter = SinkMeter("out", False, Stopwatch(clock.now))
    recent, taken = Recent(meter, clock.monotonic()), meter.tally
    clock.sleep(1.5)
    recent.read(clock.monotonic())
    assert meter.tally is not taken
    taken.add(0.1, 7)
    for _ in range(20):
        clock.sleep(1.0)
        _, _, total = recent.read(clock.monotonic())
        assert total.events == 7
