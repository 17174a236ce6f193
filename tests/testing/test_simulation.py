"""The simulator: the same seed is the same run, and no schedule or crash changes what a job does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract_jobs import Averaging, Numbering, Reading, Running, Silence, Splitting, is_even
from sample import Doubling, Payment, Seen, Summing, Sums, expected_journal, payments
from streamwork import (
    Event,
    EventCollector,
    Job,
    KeyedOperator,
    ListSource,
    Operator,
    SqliteSink,
    Stream,
    all_instances,
    fields,
    shuffle,
    single,
)
from streamwork.components import Position
from streamwork.epoch import Driver, Started
from streamwork.state import rows
from streamwork.testing import Advance, Crash, Result, explore, run
from streamwork.testing.simulation import Guards
from tiers import quick_every

START = datetime(2026, 1, 1, tzinfo=UTC)
NONE = SqliteSink("never-opened.db", "t")  # stands for any sink: a simulated run keeps its rows in memory


def summing(parallelism: int = 1, shuffled: bool = False) -> Job:
    job = Job("simulated", parallelism=parallelism)
    stream = job.source(ListSource([], Payment), id="payments")
    if shuffled:
        stream = stream.apply(Doubling(), grouping=shuffle(), id="doubling")
    stream.apply(Summing(), key="card", id="sums").sink(NONE, id="journal")
    return job


def in_order_per_card(rows: list[Seen]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.card, []).append(row.number)
    return found


def test_a_run_in_memory() -> None:
    result = run(summing(), {"payments": payments(20)})
    assert [(row.card, row.number, row.total) for row in result.outputs["journal"]] == expected_journal(payments(20))
    assert result.states["sums"]["card-0"] == Sums(3, 0 + 7 + 14)
    assert result.processed == result.delivered == {"payments": 20, "sums": 20, "journal": 20}
    assert result.lives == 1


def test_the_same_seed_is_the_same_run() -> None:
    def story(seed: int) -> tuple[list[str], int, list[Seen]]:
        result = run(summing(3), {"payments": payments(40)}, seed=seed, crash_at=[20, 45], partitions=2)
        return result.story, result.steps, result.outputs["journal"]

    assert story(5) == story(5)
    assert len({str(story(seed)) for seed in range(5)}) == 5


def test_crashes_as_data() -> None:
    events = [*payments(5), Crash(), *payments(5), Crash(), Payment("card-0", 1)]
    result = run(summing(2), {"payments": events}, seed=3)
    assert result.lives == 3
    assert sorted((row.card, row.number) for row in result.outputs["journal"]) == sorted(
        (card, number) for card, number, _ in expected_journal([*payments(5), *payments(5), Payment("card-0", 1)])
    )


def test_until_stops_a_run() -> None:
    result = run(summing(), {"payments": payments(100)}, epoch_events=5, until=lambda r: len(r.checkpoints) == 3)
    assert len(result.checkpoints) == 3
    assert result.processed["payments"] == 15


def test_time_goes_on_when_it_is_told_to() -> None:
    from contract_jobs import Waking

    job = Job("woken")
    job.source(ListSource([], Reading), id="readings").apply(Waking(), key="sensor", id="waking").sink(NONE, id="out")
    late = datetime(2026, 1, 1, 1, tzinfo=UTC)  # an hour after the virtual clock begins
    asleep = run(job, {"readings": [Reading("a", 1, late), Reading("b", 1, late)]}, epoch_events=1)
    assert asleep.outputs["out"] == []
    woken = run(job, {"readings": [Reading("a", 1, late), Advance(7200), Reading("b", 1, late)]}, epoch_events=1)
    assert {row.sensor for row in woken.outputs["out"]} == {"a", "b"}


class Clock(Operator[Reading, Reading]):
    def apply(self, event: Reading, collector: EventCollector) -> None:
        collector.emit(Reading(event.sensor, event.value, collector.now))


def test_time_goes_on_where_the_marker_stands() -> None:
    job = Job("clock")
    job.source(ListSource([], Reading), id="readings").apply(Clock(), id="clock").sink(NONE, id="out")
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    given = [Reading("a", 1, begin), Advance(7200), Reading("b", 1, begin)]
    assert [row.at.hour for row in run(job, {"readings": given}, epoch_events=1).outputs["out"]] == [0, 2]


# ---- random graphs ------------------------------------------------------------------------------------------------

SHAPES = ["keyed", "stateless", "filter", "fork", "channels", "grouped"]


def build(shapes: list[str], parallelisms: list[int]) -> Job:
    """A job of readings, put together at random: chains, forks, merges, channels, and instances that differ from step to step."""
    job = Job("random")
    stream = job.source(ListSource([], Reading), id="readings", time="at", parallelism=parallelisms[0])
    groupings = [shuffle(), single(), fields("sensor"), all_instances()]
    for place, (shape, count) in enumerate(zip(shapes, parallelisms[1:], strict=False)):
        if shape == "stateless" or shape == "filter":
            stream = stream.filter(is_even, id=f"filter-{place}") if shape == "filter" else _mapped(stream, place)
        elif shape == "fork":
            stream = stream.filter(is_even, id=f"even-{place}").union(_mapped(stream, place))
        elif shape == "channels":
            split = stream.apply(Splitting(), id=f"split-{place}", grouping=shuffle(), parallelism=count)
            split.channel("hot").sink(NONE, id=f"hot-{place}")
            stream = split
        elif shape == "grouped":
            stream = stream.apply(Same(), id=f"same-{place}", grouping=groupings[count % 3], parallelism=count)
        else:
            averages = stream.apply(Averaging(), key="sensor", id=f"averages-{place}", parallelism=count)
            averages.sink(NONE, id=f"out-{place}")
    stream.apply(Counting(), key="sensor", id="counts", parallelism=parallelisms[-1]).sink(NONE, id="counted")
    return job


class Same(Operator[Reading, Reading]):
    def apply(self, event: Reading, collector: object) -> None:
        collector.emit(event)  # type: ignore[attr-defined]


class Count(Event):
    sensor: str
    number: int


class Counting(KeyedOperator[Reading, Running, Count]):
    def apply(self, event: Reading, state: Running, collector: object) -> None:
        state.count += 1
        state.total += event.value
        collector.emit(Count(event.sensor, state.count))  # type: ignore[attr-defined]


def _mapped(stream: Stream, place: int) -> Stream:
    return stream.apply(Same(), id=f"step-{place}")


def readings(count: int) -> list[Reading]:
    return [Reading(f"s{i * 7 % 5}", i * 37 % 101, START + timedelta(seconds=i)) for i in range(count)]


def fold(plain: Result, result: Result) -> None:
    """What holds whatever the schedule: every count once and in order, every state the fold of what came in."""
    for sink in ("counted",):
        found: dict[str, list[int]] = {}
        for row in result.outputs[sink]:
            found.setdefault(row.sensor, []).append(row.number)
        for numbers in found.values():
            assert numbers == list(range(1, len(numbers) + 1)), "a count is missing, doubled or out of order"
        assert {s: len(n) for s, n in found.items()} == {s: r.count for s, r in result.states.get("counts", {}).items()}
    assert result.states == plain.states
    for sink, found in plain.outputs.items():
        if sink.startswith("hot"):
            assert sorted(map(repr, result.outputs[sink])) == sorted(map(repr, found))


SCHEDULES = 10  # each with a run without crashes and a run with crashes


def folded(shapes: list[str], events: list[Reading]) -> dict[str, tuple[int, int]]:
    """What `build(shapes, ...)` must count and sum per sensor: a plain fold, which knows nothing of engines."""
    for shape in shapes:
        even = [event for event in events if event.value % 2 == 0]
        if shape == "filter":
            events = even
        elif shape == "fork":
            events = events + even
        elif shape == "channels":
            events = [event for event in events if event.value <= 90]
    found: dict[str, tuple[int, int]] = {}
    for event in events:
        number, total = found.get(event.sensor, (0, 0))
        found[event.sensor] = number + 1, total + event.value
    return found


random_graphs = given(
    shapes=st.lists(st.sampled_from(SHAPES), max_size=4),
    parallelisms=st.lists(st.integers(1, 4), min_size=6, max_size=6),
    count=st.integers(0, 15),
    partitions=st.integers(1, 3),
)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@random_graphs
def test_state_after_recovery_is_the_fold_of_the_input(**graph: Any) -> None:
    """Each graph under 10 schedules, without a crash and with up to 2."""
    check_fold(**graph)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@random_graphs
def test_the_same_in_many_graphs(**graph: Any) -> None:
    """2,000 runs."""
    check_fold(**graph)


def check_fold(shapes: list[str], parallelisms: list[int], count: int, partitions: int) -> None:
    wanted = folded(shapes, readings(count))

    def check(plain: Result, result: Result) -> None:
        fold(plain, result)
        assert {sensor: (r.count, r.total) for sensor, r in result.states.get("counts", {}).items()} == wanted  # type: ignore[attr-defined]

    explore(build(shapes, parallelisms), {"readings": readings(count)}, SCHEDULES, partitions=partitions, check=check)


@pytest.mark.slow
def test_many_schedules_of_one_job() -> None:
    job = build(["fork", "keyed", "grouped"], [2, 3, 2, 3, 2, 3])
    struck = explore(job, {"readings": readings(15)}, 30, partitions=2, check=fold)
    assert struck.crashes > 25, "the crashes must strike for this to prove anything"


@pytest.mark.parametrize(
    ("guards", "job"),
    [
        (Guards(align=False), build(["grouped", "keyed"], [2, 3, 2, 3, 2, 3])),
        (Guards(ledger=False), build([], [1] * 6)),
    ],
    ids=["no alignment", "no ledger"],
)
def test_without_a_guard_some_schedule_breaks_it(guards: Guards, job: Job) -> None:
    with pytest.raises(AssertionError) as caught:
        explore(job, {"readings": readings(15)}, 400, partitions=2, check=fold, guards=guards)
    assert any("STREAMWORK_REPLAY=" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("seeds", quick_every(2, [5, 75]))
def test_a_stateful_operator_under_crashes(seeds: int) -> None:
    job = Job("numbered")
    job.source(ListSource([], Reading), id="readings").apply(Numbering(), id="numbers").sink(NONE, id="out")

    def check(plain: Result, result: Result) -> None:
        assert [row.number for row in result.outputs["out"]] == list(range(1, 21))

    assert explore(job, {"readings": readings(20)}, seeds, check=check).crashes > seeds


def silence() -> Job:
    job = Job("silent")
    stream = job.source(ListSource([], Reading), id="readings", time="at")
    stream.apply(Silence(), key="sensor", id="silence").sink(NONE, id="out")
    return job


def one_after_another(count: int) -> list[Reading]:
    """Each sensor speaks for eight seconds, and then no more."""
    return [Reading(f"s{place // 8}", reading.value, reading.at) for place, reading in enumerate(readings(count))]


@pytest.mark.parametrize("seeds", quick_every(2, [5, 75]))
def test_timers_under_crashes(seeds: int) -> None:
    assert [row.sensor for row in run(silence(), {"readings": one_after_another(40)}).outputs["out"]] == [
        "s0",
        "s1",
        "s2",
    ]
    assert explore(silence(), {"readings": one_after_another(40)}, seeds).crashes > seeds


def test_timers_that_were_not_stored_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_stored", lambda timers: [])
    with pytest.raises(AssertionError, match="sink out: missing"):
        explore(silence(), {"readings": one_after_another(40)}, 150)


def test_offsets_of_another_epoch_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Driver.start

    def wrong(driver: Driver) -> Started:
        started = start(driver)
        earlier = Position({name: max(0, offset - 1) for name, offset in driver.at.positions.items()})
        driver.at = msgspec.structs.replace(driver.at, positions=earlier)
        return started

    monkeypatch.setattr(Driver, "start", wrong)
    with pytest.raises(AssertionError, match="sink journal: missing .*, too many ") as caught:
        explore(summing(2), {"payments": payments(20)}, 100, partitions=2, guards=Guards(ledger=False))
    assert any("STREAMWORK_REPLAY=" in note for note in caught.value.__notes__)


def test_times_processed_and_delivered() -> None:
    job = Job("counted")
    stream = job.source(ListSource([], Reading), id="readings").filter(is_even, id="even")
    stream.apply(Averaging(), key="sensor", id="averages", on_error="drop").sink(NONE, id="out")
    result = run(job, {"readings": [Reading("a", value, START) for value in (1, 2, 4, -2, 5)]})
    assert result.processed == {"readings": 5, "even": 5, "averages": 3, "out": 2}
    assert result.delivered == {"readings": 5, "even": 3, "averages": 2, "out": 2}
