"""A source is asked once per plan, about all of its partitions: a broker has one request to answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample import Payment, payments
from streamwork import Job, OffsetSource, Slice
from streamwork.components import Position
from streamwork.epoch import planner as planner_module
from streamwork.epoch import slices
from streamwork.epoch.driver import Driver
from streamwork.epoch.planner import Planner
from streamwork.epoch.store import Store
from streamwork.hosts.local import LocalHost
from streamwork.job import Graph
from streamwork.testing.clock import VirtualClock
from streamwork.testing.memory import MemorySink, Table
from streamwork.world import RealDisk


class Broker(OffsetSource[Payment]):
    """Four partitions behind one counter of requests."""

    event = Payment
    bounded = True

    def __init__(self, sizes: Mapping[str, int], max_events: int = 40) -> None:
        self.sizes, self.max_events = dict(sizes), max_events
        self.requests: list[str] = []

    def partitions(self) -> list[str]:
        self.requests.append("partitions")
        return list(self.sizes)

    def ends(self, starts: Mapping[str, int], limit: int) -> Mapping[str, int]:
        self.requests.append("ends")
        return {part: max(start, min(self.sizes[part], start + limit)) for part, start in starts.items()}

    def known_ends(self, starts: Mapping[str, int]) -> Mapping[str, int]:
        return {}

    def earliest(self, partitions: Sequence[str]) -> Mapping[str, int]:
        self.requests.append("earliest")
        return {}

    def read(self, partition: str, start: int, end: int) -> Iterator[Slice]:
        yield Slice(payments(end)[start:end], start)


def driver_of(source: Broker, folder: Path) -> tuple[Driver, Table]:
    table, job = Table(), Job("broker")
    job.source(source, id="in").sink(MemorySink(table), id="out")
    store = Store(RealDisk(), folder, "broker")
    numbers = iter(range(10**6))
    host = LocalHost(RealDisk())
    return Driver(job.graph(), job.settings, store, host, VirtualClock(), lambda: f"{next(numbers):08x}"), table


def run(source: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Read everything; how many times the driver planned."""
    plans, plan = 0, Planner.plan

    def counting(self: Planner, *given: Any) -> Any:
        nonlocal plans
        plans += 1
        return plan(self, *given)

    monkeypatch.setattr(Planner, "plan", counting)
    driver, table = driver_of(source, folder)
    driver.start()
    assert "ends" not in source.requests, "nothing is asked before the first plan"
    source.requests.clear()
    while driver.run_epoch() is not None:
        pass
    driver.close()
    assert len(table.rows) == sum(source.sizes.values())
    return plans


def test_ends_is_called_once_per_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Broker({"a": 35, "b": 12, "c": 0, "d": 50})
    plans = run(source, tmp_path, monkeypatch)
    assert plans == 6, "five that read ten events of each partition, one that finds nothing"
    assert source.requests.count("ends") == plans
    assert source.requests.count("earliest") == plans, "about partitions that were never read: `c` stays empty"
    assert source.requests.count("partitions") == plans, "the epoch goes on with those of its plan"


def test_the_count_notices_a_question_for_each_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a planner that asks about one partition after another."""

    def one_by_one(graph: Graph, start: Position, begins: slices.Begins, reported: Any, most: Any) -> Position:
        (node,), found = graph.planned, start
        for part, at in begins["in"].items():
            reached = node.component.ends({part: at}, slices.share_of(node, 4, most))
            found = found.moved({f"in/{part}": offset for part, offset in reached.items() if offset})
        return found

    monkeypatch.setattr(planner_module, "ends", one_by_one)
    source = Broker({"a": 35, "b": 12, "c": 0, "d": 50})
    assert source.requests.count("ends") < 4 * run(source, tmp_path, monkeypatch) == source.requests.count("ends")


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 30), min_size=1), st.integers(1, 40))
def test_a_plan_that_leaves_nothing_is_not_limited(sizes: dict[str, int], max_events: int) -> None:
    """Whether there is more is derived from the one answer, for a source that does not say: it errs on the safe side."""
    source = Broker(sizes, max_events)
    job = Job("broker")
    job.source(source, id="in").sink(MemorySink(Table()), id="out")
    planner = Planner.__new__(Planner)
    planner._graph, planner._goal, planner._sizing = job.graph(), None, None
    planner.most = slices.max_events
    start = Position({f"in/{part}": size // 3 for part, size in sizes.items()})
    begins = slices.begins(job.graph(), slices.Partitions.of(job.graph(), frozenset()), start)
    end = planner._ends(start, begins, ())
    left = any(end[f"in/{part}"] < size for part, size in sizes.items())
    full = any(end[name] - start[name] >= max(1, max_events // len(sizes)) for name in end)
    assert planner._is_more(begins, end) == full and (full or not left)
