"""Channels with bounds: senders stop, checkpoint events pass, and nothing deadlocks with alignment."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from order_jobs import PIECE, Counting, Item, Keyed, Parts, Passing
from streamwork import Job, SqliteSink, all_instances, shuffle
from streamwork.engine.executor import Executor
from streamwork.flow.batch import Batch
from streamwork.flow.channel import Bound, Channel, CheckpointEvent, Data, Part, Watermark
from streamwork.flow.dispatcher import Dispatcher
from streamwork.job import Input
from streamwork.testing import run
from tiers import quick_every

NONE = SqliteSink("never-opened.db", "t")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def data(count: int) -> Data:
    return Data(1, (Part(Input("in"), "next", Batch([Item(0, 0, "0", n, "") for n in range(count)])),))


def test_a_bound_limits_events_and_bytes_but_not_checkpoint_events() -> None:
    channel = Channel("a", Bound(events=5))
    assert channel.offer(data(9)), "an empty channel takes data of any size"
    assert not channel.has_room() and not channel.offer(data(1))
    assert channel.offer(CheckpointEvent(1, "x")) and channel.offer(Watermark(1, NOW))
    channel.receive()
    assert channel.offer(data(2)) and channel.offer(data(3)) and not channel.offer(data(1))
    small = Channel("b", Bound(bytes=500))
    assert small.offer(data(1)) and small.offer(data(1)) and not small.offer(data(1))
    assert Channel("c").has_room(10**9, 10**12)


def tangled(max_events: int = 7) -> Job:
    """A fork whose branches have exchanges and meet again, with several instances: alignment on every input."""
    job = Job("tangled", checkpoint_every=0)
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

    def noting(executor: Executor, choice: Any) -> None:
        turn(executor, choice)
        fullest.extend(channel.events for channel in executor._outputs)

    monkeypatch.setattr(Executor, "turn", noting)
    return fullest


def test_a_channel_that_never_has_room_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a receiver that does not free room stops its senders for ever."""
    monkeypatch.setattr(Channel, "receive", lambda channel: channel.items.popleft())
    with pytest.raises(Exception, match="SW-EPOCH-REPORTS"):
        outputs(1, 1)


def test_where_an_output_is_full_checkpoint_events_and_watermarks_are_taken_and_data_is_not() -> None:
    class Stub(Executor):
        def __init__(self) -> None:
            full, waiting = Channel("out", Bound(events=1)), Channel("in")
            full.send(data(1))
            self.instance: Any = type("I", (), {"chain": type("C", (), {"waiting": None})})
            self._outputs, self._dispatcher = [full], Dispatcher([waiting])
            self._planned, self._reading = deque([None]), None  # type: ignore[list-item]
            self.waiting = waiting

    for item, taken in ((data(1), False), (CheckpointEvent(1, "x"), True), (Watermark(1, NOW), True)):
        stub = Stub()
        stub.waiting.send(item)
        assert stub.choices() == ([stub.waiting] if taken else []), "and no source is read"
