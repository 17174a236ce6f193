"""The policies of backpressure, in the simulator: schedules, tiny bounds and crashes are drawn at random.

Nothing is lost, what waits is bounded, and nothing deadlocks with aligned checkpoints; dropped events are counted.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from order_jobs import PIECE, Counting, Item, Keyed, Parts, Passing
from streamwork import Event, Fixed, Job, ListSource, SqliteSink, count, shuffle, single
from streamwork.engine.executor import Executor
from streamwork.errors import WrongUse
from streamwork.flow.brakes import Brakes
from streamwork.flow.gauge import CHANNEL_BOUND, Bound, Gauge
from streamwork.flow.wiring import Place
from streamwork.job import Layout
from streamwork.run.mode import Mode, policy_note
from streamwork.run.options import RunOptions
from streamwork.testing import run
from streamwork.testing.simulation import Result

NONE = SqliteSink("never-opened.db", "t")
EVENTS = 12  # of each partition


def met(policy: Any, **options: Any) -> Job:
    """Two sources, one of them behind an exchange more, meet at instances that wait for the checkpoint events of both."""
    job = Job("met", checkpoint_every=0, backpressure=policy, **options)
    first = job.source(Parts("one", 2, EVENTS, 9), id="one", parallelism=2)
    other = job.source(Parts("two", 1, EVENTS, 9), id="two", parallelism=1)
    turned = first.apply(Passing("turned"), id="turned", grouping=shuffle(), parallelism=2)
    both = turned.union(other).apply(Keyed("keyed", ("a",)), key="a", id="keyed", parallelism=2)
    both.apply(Counting("last"), id="last", grouping=shuffle(), parallelism=2).sink(NONE, id="out")
    return job


def rows(result: Result) -> Counter[tuple[str, int]]:
    return Counter((row.partition, row.offset) for row in result.outputs["out"])


def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events wait in the fullest channel of each turn."""
    fullest: list[int] = []
    turn = Executor.turn

    def noting(executor: Executor, choice: Any) -> bool:
        found = turn(executor, choice)
        fullest.append(max((one.gauge.events for one in executor._outputs if one.gauge is not None), default=0))
        return found

    monkeypatch.setattr(Executor, "turn", noting)
    return fullest


WANTED = Counter((part, n) for part in ("one/0", "one/1", "two/0") for n in range(EVENTS))
worlds = given(
    policy=st.sampled_from(["sources", "upstream"]),
    seed=st.integers(0, 10_000),
    most=st.integers(1, 6),
    crash_at=st.lists(st.integers(1, 200), max_size=2),
)


@settings(max_examples=15)
@worlds
def test_nothing_is_lost_what_waits_is_bounded_and_nothing_deadlocks(
    policy: str, seed: int, most: int, crash_at: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fullest = watched(patch)
        found = run(met(policy), seed=seed, crash_at=crash_at, bound=Bound(events=most))
    assert rows(found) == WANTED
    assert max(fullest) < (2 * most if policy == "sources" else most) + PIECE


def first_stall(policy: str) -> str:
    """The error of the first seed under which the run does not end."""
    for seed in range(40):
        try:
            run(met(policy), seed=seed, bound=Bound(events=2))
        except Exception as error:
            return str(error)
    return ""


@pytest.mark.parametrize("policy", ["sources", "upstream"])
def test_control_a_policy_that_forgets_to_resume_is_caught(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    monkeypatch.setattr(Gauge, "_is_below", lambda gauge, level: False)
    assert "SW-EPOCH-REPORTS" in first_stall(policy)


def test_control_stopping_every_source_before_a_slow_instance_deadlocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that waits for the checkpoint event of another one fills its channel: the source of that event must not stop."""

    def holds(brakes: Brakes, source: Place) -> bool:
        return any(gauge.stops_sources for _, gauge in brakes._gauges)

    monkeypatch.setattr(Brakes, "holds", holds)
    assert "SW-EPOCH-REPORTS" in first_stall("sources")


def test_sources_stop_at_once_and_upstream_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a channel to the last instance is full, sources read nothing under `sources`, and still do under `upstream`."""
    read: Counter[str] = Counter()
    turn = Executor.turn

    def noting(executor: Executor, choice: Any) -> bool:
        if choice is None and any(gauge.is_full for gauge in last[2:]):
            read[policy] += 1
        return turn(executor, choice)

    made, last = Gauge.__init__, list[Gauge]()

    def making(gauge: Gauge, *args: Any) -> None:
        made(gauge, *args)
        last.append(gauge)

    monkeypatch.setattr(Executor, "turn", noting)
    monkeypatch.setattr(Gauge, "__init__", making)
    for policy in ("sources", "upstream"):
        last.clear()
        run(line(policy), seed=1, epoch_events=40, bound=Bound(events=2))
    assert read["sources"] == 0 < read["upstream"]


def line(policy: Any, **options: Any) -> Job:
    job = Job("line", checkpoint_every=0, backpressure=policy, **options)
    stream = job.source(Parts("in", 1, 40, 40), id="in")
    for name, parallelism in (("a", 2), ("b", 1)):
        stream = stream.apply(Passing(name), id=name, grouping=shuffle(), parallelism=parallelism)
    stream.sink(NONE, id="out")
    return job


# ---- drop -----------------------------------------------------------------------------------------------------------


def forked() -> Job:
    """Two branches: one drops events when it lags."""
    job = Job("forked", checkpoint_every=0, semantics="at-most-once", backpressure="upstream")
    stream = job.source(Parts("in", 2, EVENTS, 9), id="in", parallelism=2)
    stream.apply(Passing("slow"), id="slow", backpressure="drop").sink(NONE, id="some")
    stream.apply(Counting("all"), id="all", grouping=shuffle(), parallelism=2).sink(NONE, id="out")
    return job


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), most=st.integers(1, 4))
def test_what_is_dropped_is_counted_and_everyone_else_goes_on(seed: int, most: int) -> None:
    found = run(forked(), seed=seed, bound=Bound(events=most))
    slow, sent = found.counts["slow"], found.delivered["in"]
    assert slow["processed"] == sent == 2 * EVENTS, "sent == processed"
    assert slow["delivered"] + slow["dropped"] == slow["processed"]
    assert len(found.outputs["some"]) == slow["delivered"]
    assert rows(found) == Counter((f"in/{part}", n) for part in range(2) for n in range(EVENTS))


def test_events_are_dropped_at_all() -> None:
    """The negative control of the sums above; and with room, nothing is."""
    dropped = [run(forked(), seed=seed, bound=Bound(events=1)).counts["slow"]["dropped"] for seed in range(5)]
    assert max(dropped) > 2
    assert run(forked(), seed=1, bound=Bound(events=1_000)).counts["slow"]["dropped"] == 0


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), crash_at=st.lists(st.integers(1, 100), min_size=1, max_size=2))
def test_after_a_crash_what_is_dropped_is_counted_too(seed: int, crash_at: list[int]) -> None:
    found = run(forked(), seed=seed, crash_at=crash_at, bound=Bound(events=2))
    counts = {name: Counter(found.counts.get(name, {})) for name in ("in", "slow", "all")}  # empty: all is in doubt
    slow, sent = counts["slow"], counts["in"]["delivered"]
    assert slow["delivered"] + slow["dropped"] == slow["processed"] == sent
    assert counts["all"]["processed"] == counts["all"]["delivered"] == sent


def test_a_buffer_of_a_component_bounds_what_waits_for_it() -> None:
    """With the job's bound nothing is dropped; a small buffer of one component drops there, and only there."""

    def job(buffer: int | None) -> Job:
        job = Job("buffered", checkpoint_every=0, semantics="at-most-once", backpressure="drop")
        stream = job.source(Parts("in", 2, EVENTS, 9), id="in", parallelism=2)
        stream.apply(Passing("slow"), id="slow", grouping=single(), buffer=buffer).sink(NONE, id="some")
        stream.apply(Counting("all"), id="all", grouping=shuffle(), parallelism=2).sink(NONE, id="out")
        return job

    small = [run(job(1), seed=seed, bound=Bound(events=1_000)).counts for seed in range(5)]
    assert max(counts["slow"]["dropped"] for counts in small) > 2
    assert not any(counts["all"]["dropped"] for counts in small)
    assert all(counts["slow"]["processed"] == 2 * EVENTS for counts in small)
    assert run(job(None), seed=1, bound=Bound(events=1_000)).counts["slow"]["dropped"] == 0, "the negative control"
    layout = Layout.of(job(7).graph(), 8, bounds=True)
    assert layout.buffers[layout.chain_of("slow")] == 7 and layout.buffers[layout.chain_of("all")] is None
    assert CHANNEL_BOUND.of(7) == Bound(7, CHANNEL_BOUND.bytes) and CHANNEL_BOUND.of(None) == CHANNEL_BOUND
    with pytest.raises(WrongUse, match="buffer=0"):
        job(0)


# ---- the job --------------------------------------------------------------------------------------------------------


def test_dropping_needs_at_most_once() -> None:
    for job in (line("drop"), line("drop", semantics="at-least-once")):
        with pytest.raises(WrongUse, match="SW-JOB-SEMANTICS") as refused:
            job.graph()
        assert "backpressure='drop'" in refused.value.cause
    assert line("drop", semantics="at-most-once").graph()
    with pytest.raises(WrongUse, match="SW-JOB-SETTING"):
        line("wait")


def test_a_component_that_drops_begins_a_chain_where_channels_are_bounded() -> None:
    graph = forked().graph()
    bounded, other = Layout.of(graph, 8, bounds=True), Layout.of(graph, 8)
    assert bounded.chain_of("slow") != bounded.chain_of("in")
    assert other.chain_of("slow") == other.chain_of("in"), "in microbatch it stays where it is"
    policies = dict(zip([chain.nodes[0] for chain in bounded.chains], bounded.policies, strict=True))
    assert [policies[name].value for name in ("slow", "all")] == ["drop", "upstream"]
    assert "dropped" in bounded.explain()


def test_a_sink_has_a_policy_of_its_own() -> None:
    job = Job("sinks", semantics="at-most-once")
    job.source(Parts("in", 1, 3, 3), id="in").sink(NONE, id="out", backpressure="drop")
    layout = Layout.of(job.graph(), 8, bounds=True)
    assert layout.policies[layout.chain_of("out")].value == "drop"
    assert Item in {node.takes for node in layout.graph.sinks}


class Reading(Event):
    zone: str
    value: int
    at: datetime


class PerZone(Event):
    zone: str
    readings: int


def readings(job: Job, name: str) -> Any:
    return job.source(ListSource([], Reading), id=name, time="at")


def test_windows_joins_and_tables_have_policies_and_buffers() -> None:
    job = Job("many", semantics="at-most-once", parallelism=2)
    drops: dict[str, Any] = {"backpressure": "drop", "buffer": 9}
    windows = readings(job, "a").window(Fixed("10s"), key="zone", id="windows", **drops)
    windows.aggregate(PerZone, readings=count()).sink(NONE, id="out-1")
    left, right = readings(job, "b"), readings(job, "c")
    left.join(right, key="zone", within="1s", id="both", **drops).sink(NONE, id="out-2")
    table = readings(job, "d").table(key="zone", id="table", **drops)
    readings(job, "e").join(table, key="zone", id="looked-up", parallelism=2).sink(NONE, id="out-3")
    named = readings(job, "f").table(key="zone", id="named")
    readings(job, "g").join(named, key="zone", id="with-named", **drops).sink(NONE, id="out-4")
    layout = Layout.of(job.graph(), 8, bounds=True)
    for name, source in (("windows", "a"), ("both", "b"), ("table", "d"), ("with-named", "g")):
        chain = layout.chain_of(name)
        assert (layout.policies[chain].value, layout.buffers[chain]) == ("drop", 9), name
        assert layout.chain_of(source) != chain, name
    for tables, join in (("table", "looked-up"), ("named", "with-named")):
        assert layout.chain_of(tables) == layout.chain_of(join), "a join reads the state of its table"
    for name in ("windows", "both", "table", "with-named"):
        assert name in policy_note(job.graph(), Mode.MICROBATCH)


def test_windows_joins_and_tables_are_checked() -> None:
    job = Job("checked")
    stream = readings(job, "a")
    window = stream.window(Fixed("10s"), key="zone", id="windows", backpressure="drop")
    window.aggregate(PerZone, readings=count()).sink(NONE, id="out")
    with pytest.raises(WrongUse, match="windows has backpressure='drop'"):
        job.graph()
    with pytest.raises(WrongUse, match="buffer=0"):
        stream.window(Fixed("10s"), key="zone", id="other", buffer=0)
    with pytest.raises(WrongUse, match="'wait'"):
        stream.table(key="zone", id="table", backpressure="wait")  # type: ignore[arg-type]


def test_a_run_overrides_the_policy_of_the_job() -> None:
    job = line("upstream", semantics="at-most-once")
    options = RunOptions.parse(root=Path("root"), backpressure="drop")
    assert job.graph(options.settings(job.settings)).backpressure.value == "drop"
    exact = line("upstream")
    with pytest.raises(WrongUse, match="SW-JOB-SEMANTICS"):
        exact.graph(options.settings(exact.settings))


def test_where_a_policy_has_no_effect_the_run_says_so() -> None:
    for job, named in ((forked(), "the job, slow"), (line("upstream"), "the job"), (met("sources"), "")):
        for mode in Mode:
            note = policy_note(job.graph(), mode)
            assert bool(note) is bool(named and mode in (Mode.MICROBATCH, Mode.BATCH))
            assert not note or note.startswith(f"backpressure= of {named} has no effect in mode {mode.value}")


def test_the_page_s_job_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "backpressure.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "scores.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("scores")
    assert sorted(one.sensor for one in module.scores) == ["a", "b"]
    events, megabytes = f"{CHANNEL_BOUND.events:,}", (CHANNEL_BOUND.bytes or 0) >> 20
    assert f"A channel holds {events} events or {megabytes} MB" in page
