"""Channels with bounds: senders stop, checkpoint events pass, and nothing deadlocks with alignment."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from order_jobs import PIECE, Counting, Item, Keyed, Parts, Passing
from streamwork import Job, SqliteSink, all_instances, shuffle
from streamwork.engine.executor import Executor
from streamwork.errors import JobFailed
from streamwork.flow.batch import Batch
from streamwork.flow.channel import Advances, Aligned, Channel, CheckpointEvent, Data, Part, Watermark
from streamwork.flow.dispatcher import Dispatcher
from streamwork.flow.gauge import Bound, Gauge
from streamwork.job import Input
from streamwork.job.backpressure import Backpressure
from streamwork.testing import run
from tiers import quick_every

NONE = SqliteSink("never-opened.db", "t")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def data(count: int) -> Data:
    return Data(1, (Part(Input("in"), "next", Batch([Item(0, 0, "0", n, "") for n in range(count)])),))


def test_a_bound_limits_events_and_bytes_but_not_checkpoint_events() -> None:
    channel = bounded(Bound(events=4), "upstream")
    for count, full in ((3, False), (9, True)):
        channel.send(data(count))
        assert channel.has_room() is not full, "a channel with room takes data of any size"
    channel.send(CheckpointEvent(1, "x"))
    channel.send(Watermark(1, NOW))
    assert len(channel.items) == 4
    channel.receive()
    assert not channel.has_room()
    channel.receive()
    assert channel.has_room()
    small = bounded(Bound(bytes=500), "upstream")
    for _ in range(3):
        assert small.has_room()
        small.send(data(1))
    assert not small.has_room()
    assert Channel("c").has_room()


def bounded(bound: Bound, policy: str) -> Channel:
    return Channel("in", Gauge(bound, Backpressure(policy), lambda: 0.0))


def test_pressure_begins_at_the_bound_and_ends_at_half_of_it() -> None:
    channel, at = bounded(Bound(events=10), "upstream"), []
    for _ in range(10):
        at.append(channel.has_room())
        channel.send(data(1))
    assert all(at) and not channel.has_room()
    while not channel.has_room():
        channel.receive()
    assert len(channel.items) == 5


def test_where_sources_are_stopped_their_events_pass_up_to_twice_the_bound() -> None:
    channel = bounded(Bound(events=10), "sources")
    assert channel.gauge is not None
    seen = []
    for _ in range(20):
        channel.send(data(1))
        seen.append((channel.gauge.stops_sources, channel.has_room()))
    assert seen == [(False, True)] * 9 + [(True, True)] * 10 + [(True, False)]
    while not channel.has_room():
        channel.receive()
    assert len(channel.items) == 10 and channel.gauge.stops_sources


def test_where_events_are_dropped_they_are_counted_and_event_time_passes() -> None:
    channel = bounded(Bound(events=2), "drop")
    for number in range(4):
        assert channel.has_room()
        channel.send(replace(data(1), advances=Advances(np.zeros(1, np.int64), np.array([number]))))
    channel.send(data(3))
    channel.send(CheckpointEvent(1, "x"))
    assert [len(item) if isinstance(item, Data) else -1 for item in channel.items] == [1, 1, 0, 0, -1]
    event = channel.items[-1]
    assert isinstance(event, CheckpointEvent) and event.sent == 7 and event.dropped == (("next", 5),)


def test_what_is_sent_and_neither_comes_nor_is_dropped_is_noticed() -> None:
    channel = bounded(Bound(events=2), "drop")
    for count in (2, 3):
        channel.send(data(count))
    channel.send(CheckpointEvent(1, "x"))
    dispatcher = Dispatcher([channel])
    dispatcher.receive(channel)
    aligned = dispatcher.receive(channel)
    assert isinstance(aligned, Aligned) and aligned.dropped == (("next", 3),)
    channel.send(data(1))
    channel.send(CheckpointEvent(2, "x"))
    channel.items.popleft()  # lost
    with pytest.raises(JobFailed, match="SW-EXCHANGE-INCOMPLETE"):
        dispatcher.receive(channel)


def tangled(max_events: int = 7) -> Job:
    """A fork whose branches have exchanges and meet again, with several instances: alignment on every input."""
    job = Job("tangled", checkpoint_every=0, backpressure="upstream")
    stream = job.source(Parts("in", 2, 40, max_events), id="in", parallelism=2)
    turned = stream.apply(Passing("turned"), id="turned", grouping=shuffle(), parallelism=3)
    keyed = stream.apply(Keyed("keyed", ("a",)), key="a", id="keyed", parallelism=2)
    both = turned.union(keyed).apply(Counting("all"), id="all", grouping=all_instances(), parallelism=2)
    both.sink(NONE, id="out")
    return job


def outputs(seed: int, most: int) -> list[Any]:
    crash_at = [25 + seed] if seed % 3 == 0 else []
    rows = run(tangled(), seed=seed, crash_at=crash_at, bound=Bound(events=most)).outputs["out"]
    return sorted((row.partition, row.offset, row.trace.count(">")) for row in rows)


@pytest.mark.parametrize("seeds", quick_every(2, [range(2), range(2, 8)]), ids=["the first", "the others"])
@pytest.mark.parametrize("most", [1, 3])
def test_small_bounds_do_not_deadlock_with_alignment(
    monkeypatch: pytest.MonkeyPatch, most: int, seeds: Sequence[int]
) -> None:
    wanted, fullest = outputs(0, 10**6), watched(monkeypatch)
    for seed in seeds:
        assert outputs(seed, most) == wanted
    assert 0 < max(fullest) <= most + PIECE, "at most one slice more than the bound"


def test_without_bounds_more_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the measure above."""
    fullest = watched(monkeypatch)
    for seed in range(4):
        outputs(seed, 10**6)
    assert max(fullest) > 3 + PIECE


def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events wait in each channel after each turn."""
    fullest: list[int] = []
    turn = Executor.turn

    def noting(executor: Executor, choice: Any) -> bool:
        found = turn(executor, choice)
        fullest.extend(channel.gauge.events for channel in executor._outputs if channel.gauge is not None)
        return found

    monkeypatch.setattr(Executor, "turn", noting)
    return fullest


def test_a_channel_that_never_has_room_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a receiver that does not free room stops its senders for ever."""
    monkeypatch.setattr(Gauge, "take", lambda gauge, events, size: None)
    with pytest.raises(Exception, match="SW-EPOCH-REPORTS"):
        outputs(1, 1)


def test_where_an_output_is_full_checkpoint_events_and_watermarks_are_taken_and_data_is_not() -> None:
    class Stub(Executor):
        def __init__(self) -> None:
            full, waiting = bounded(Bound(events=1), "upstream"), Channel("in")
            full.send(data(1))
            self.instance: Any = type("I", (), {"chain": type("C", (), {"waiting": None})})
            self._outputs, self._dispatcher = [full], Dispatcher([waiting])
            self._is_held, self.closes = lambda: False, None
            self._planned, self._reading = deque([None]), None  # type: ignore[list-item]
            self.given = waiting

    for item, taken in ((data(1), False), (CheckpointEvent(1, "x"), True), (Watermark(1, NOW), True)):
        stub = Stub()
        stub.given.send(item)
        assert stub.choices() == ([stub.given] if taken else []), "and no source is read"
