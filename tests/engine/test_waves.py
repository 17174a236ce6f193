"""Batches give what single events would give: outputs in their order, states, timers, watermarks that are read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.one_by_one import NONE, Item, Marking, OneByOne, Timing, random_items, random_job
from streamwork import Job, ListSource
from streamwork.components import Slice
from streamwork.components.columns import Columns, to_batch, to_structs
from streamwork.components.times import from_microseconds, microseconds
from streamwork.engine import Assignment, process
from streamwork.engine import chain as chain_module
from streamwork.engine.chain import Chain
from streamwork.engine.instance import Instance
from streamwork.engine.steps import walk
from streamwork.engine.steps.sink_steps import StageStep
from streamwork.engine.steps.staging import read_staged
from streamwork.engine.times import RowTimes
from streamwork.flow import batch as batches
from streamwork.flow.lineage import NEVER
from streamwork.flow.needs import Needs
from streamwork.job import Graph, Layout
from streamwork.state import KeyedState
from streamwork.state.table import Table
from streamwork.testing import SimulatedDisk, run
from streamwork.testing.clock import VirtualClock

Pieces = list[tuple[str, int, list[Item], bool]]
"""(partition, offset of the first event, events, as columns?)"""


def pieces_of(seed: int, count: int, longest: int) -> Pieces:
    """The events of two partitions, in turns, cut anywhere."""
    rng, found = random.Random(seed), []
    left = {"0": random_items(seed, count), "1": random_items(seed + 1, count // 2)}
    at = dict.fromkeys(left, 0)
    while any(left.values()):
        name = rng.choice([name for name, events in left.items() if events])
        size = rng.randint(1, longest)
        found.append((name, at[name], left[name][:size], rng.random() < 0.3))
        at[name], left[name] = at[name] + len(left[name][:size]), left[name][size:]
    return found


def singly(pieces: Pieces) -> Pieces:
    return [(name, at + n, [one], columns) for name, at, events, columns in pieces for n, one in enumerate(events)]


def results(kind: type[Chain], graph: Graph, pieces: Pieces, needs: Needs | None = None) -> dict[str, Any]:
    """What one epoch of one instance gives: rows of sinks in order, records, timers, counters, watermarks."""
    disk = SimulatedDisk()
    disk.make_folder(Path("/w"))
    work = Assignment(
        0, "u", "/w", 16, 1, 1, {}, {}, watermarks={"in/0": None, "in/1": None}, ticks=(microseconds(LATE),)
    )
    chain = kind(graph, None, 0, needs)
    instance = Instance(chain, disk, work, clock=VirtualClock())
    instance.begin(work, "a")
    for partition, at, events, columns in pieces:
        given = Columns(Item, to_batch(Item, events, "in")) if columns else list(events)
        chain.process("in", partition, Slice(given, at))
    instance.bring(work)
    chain.drain()
    found: dict[str, Any] = {"progress": chain.progress.partitions("in")}
    for name, state in instance.states.items():
        if isinstance(state, KeyedState):
            found[f"{name} records"], found[f"{name} timers"] = dict(state.records), dict(state.timers)
        elif isinstance(state, Table):
            rows = state.keys(state.places()).to_pylist()
            found[f"{name} rows of state"] = sorted(tuple(row.values()) for row in rows)
    for report in instance.finish():
        found[f"{report.component} counts"] = report.counters
        if report.staged is not None:
            rows = read_staged(disk, Path("/w"), report.staged)
            found[f"{report.component} rows"] = [row for some in rows for row in to_structs(Item, some)]
    return found


LATE = random_items(3, 1)[0].at.replace(year=2027)


@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([1, 3, 40]))
@settings(max_examples=60, deadline=None)
@example(0, 30, 40)
def test_batches_give_what_single_events_give(seed: int, count: int, longest: int) -> None:
    graph, pieces = random_job(seed).graph(), pieces_of(seed, count, longest)
    wanted = results(OneByOne, graph, pieces)
    assert results(Chain, graph, pieces) == wanted
    assert results(Chain, graph, singly(pieces)) == wanted, "single events through the batches' way"


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_behind_exchanges_too(seed: int, count: int, cut: int) -> None:
    """One instance sends, several receive: the order at each is given."""
    job, items = random_job(seed, parallelism=3), random_items(seed, count)
    found = run(job, {"in": items}, seed=seed, epoch_events=cut)
    wanted = as_singles(lambda: run(job, {"in": items}, seed=seed + 1, epoch_events=cut))
    assert by_key(found.outputs) == by_key(wanted.outputs)
    assert found.states == wanted.states
    assert found.counts == wanted.counts


def by_key(outputs: dict[str, list[Item]]) -> dict[tuple[str, str], list[Item]]:
    """The rows of each sink and key, in order: those of a key come from one instance."""
    found: dict[tuple[str, str], list[Item]] = {}
    for sink, rows in outputs.items():
        for row in rows:
            found.setdefault((sink, row.key), []).append(row)
    return found


def as_singles(act: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "Chain", OneByOne)
        return act()


def layout_of(job: Job) -> Layout:
    return Layout.of(job.graph(), 256)


def is_narrow(job: Job) -> bool:
    """True if every chain that sends has one instance: then each receiver has one input."""
    layout = layout_of(job)
    return all(layout.chains[chain].parallelism == 1 for before in layout.upstream for chain in before)


def test_the_random_jobs_hold_what_they_are_meant_to_hold() -> None:
    jobs = [random_job(seed) for seed in range(100)]
    graphs = [job.graph() for job in jobs]
    assert sum(any(len(n.inputs) > 1 and n not in g.sinks for n in g.nodes) for g in graphs) > 30, "branches meet"
    assert sum(any(getattr(n.component, "uses_timers", False) for n in g.nodes) for g in graphs) > 50
    wide = [random_job(seed, parallelism=3) for seed in range(100)]
    assert all(len(layout_of(job).chains) > 1 and is_narrow(job) for job in wide)
    assert sum(layout_of(job).interleaves(0) for job in wide) > 90


# ---- negative controls --------------------------------------------------------------------------------------------


def is_caught(seeds: int = 40) -> bool:
    for seed in range(seeds):
        graph, pieces = random_job(seed).graph(), pieces_of(seed, 30, 40)
        if results(Chain, graph, pieces) != results(OneByOne, graph, pieces):
            return True
    return False


def test_nothing_is_caught_without_a_fault() -> None:
    assert not is_caught()


def test_cutting_nowhere_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers fire behind the batch."""

    def due(self: walk.Walk) -> int:
        is_over = self._at == self._count and self._timers is not None
        return min(self._next, len(self._times)) if is_over else len(self._times)

    monkeypatch.setattr(walk.Walk, "_due", due)
    assert is_caught()


def test_not_stopping_for_a_timer_that_is_set_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stretch = walk.Walk._stretch

    def deaf(self: walk.Walk, end: int, due: int) -> Any:
        self._next, before = max(self._next, due), self._next
        found = stretch(self, end, due)
        self._next = before
        return found

    monkeypatch.setattr(walk.Walk, "_stretch", deaf)
    assert is_caught()


def test_merging_in_the_order_of_arrival_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamwork.engine.wave.merged", batches.joined)
    assert is_caught()


def test_reading_the_watermark_of_the_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowTimes, "watermark", property(lambda self: self._instance.watermark))
    assert is_caught()


# ---- the watermark of an event's own partition ---------------------------------------------------------------------


def lateness_job() -> Job:
    job = Job("late")
    stream = job.source(ListSource([], Item), id="in", time="at")
    both = stream.apply(Marking("a"), id="a").union(stream.filter(is_odd, id="odd"))
    both.apply(Timing("t"), key="key", id="t").apply(Marking("b"), id="b").sink(NONE, id="out")
    return job


def is_odd(item: Item) -> bool:
    return item.number % 2 == 1


@given(st.integers(0, 10**6), st.integers(1, 50), st.sampled_from([1, 4, 50]))
@settings(max_examples=30, deadline=None)
def test_each_event_knows_the_watermark_of_its_own_partition(seed: int, count: int, longest: int) -> None:
    pieces, seen = pieces_of(seed, count, longest), []

    def noting(step: Any, batch: Any) -> Any:
        marks = batch.lineage.watermarks.tolist()
        seen.extend((event, mark) for event, mark in zip(batch.events, marks, strict=True))
        return process_(step, batch)

    process_ = StageStep.process
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageStep, "process", noting)
        results(Chain, lateness_job().graph(), pieces, Needs(watermarks=True))
    wanted: dict[tuple[int, Any], set[int]] = {}
    latest = {"0": NEVER, "1": NEVER}
    for partition, _, events, _ in pieces:
        for event in events:
            wanted.setdefault((event.number, event.at), set()).add(latest[partition])
            latest[partition] = max(latest[partition], microseconds(event.at))
    assert seen or not count
    for event, mark in seen:
        if "!" in event.trace:
            assert mark >= microseconds(event.at), "of the advance at which the timer fired"
        else:
            assert mark in wanted[event.number, event.at], "of its own partition just before it"
    events_seen = [mark for event, mark in seen if "!" not in event.trace]
    assert len(events_seen) >= count // 2


@pytest.mark.slow
def test_the_watermark_of_the_batch_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: lateness judged by the end of the batch depends on cuts."""
    plain = chain_module.rises

    def late(times: Any, before: int | None) -> Any:
        found, places = plain(times, before)
        return np.full(len(times), max(times.max(), found.max())), places

    monkeypatch.setattr(chain_module, "rises", late)
    with pytest.raises(AssertionError, match="just before it"):
        test_each_event_knows_the_watermark_of_its_own_partition()


def test_times_are_whole_microseconds() -> None:
    moment = random_items(1, 1)[0].at
    assert from_microseconds(microseconds(moment)) == moment
