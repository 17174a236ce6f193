"""Results with each event, per epoch, by triggers; a user's own windows and aggregates; windows over everything; `top`."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.windows.oracle import (
    AGGREGATES,
    EXAMPLES,
    ORDERED,
    START,
    Case,
    CountSummary,
    Everything,
    Oracle,
    Ordered,
    Seen,
    TimeSummary,
    random_events,
)
from operators.windows.test_windows import KINDS, NAMES, NONE, check, job_of, last_of_each, plain, rows_of
from streamwork import (
    Aggregate,
    Assigner,
    BatchCollector,
    Event,
    Fixed,
    Job,
    ListSource,
    Operator,
    Session,
    Sliding,
    Trigger,
    count,
    max_of,
    sum_of,
)
from streamwork.components.times import microseconds
from streamwork.operators.windows import Window
from streamwork.testing import Pause, run

FEW = settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
SEEDS = st.integers(0, 10**6)
CUTS = st.sampled_from([1, 4, 60])
TIME_KINDS = {name: kind for name, kind in KINDS.items() if not kind.by_count}


def summary(window: Window) -> type[Event]:
    return CountSummary if window.by_count else TimeSummary


class Numbered(Event):
    """An event with the aggregates of its window."""

    number: int
    key: str | None
    events: int
    total: int


class NumberedInTime(Numbered):
    window_start: datetime


class NumberedInCount(Numbered):
    window_number: int


RUNNING = {"events": count(), "total": sum_of("number")}


@pytest.mark.slow(kind=["uneven", "fixed count", "one by one"])
@pytest.mark.parametrize("kind", [name for name in KINDS if name != "session"])
@given(seed=SEEDS, disorder=st.sampled_from([0, 40]), parallelism=st.integers(1, 3), cut=CUTS)
@FEW
def test_each_event_has_the_aggregates_so_far(kind: str, seed: int, disorder: int, parallelism: int, cut: int) -> None:
    check_each(KINDS[kind], seed, disorder, parallelism, cut)


def check_each(window: Window, seed: int, disorder: int, parallelism: int, cut: int) -> None:
    """``emit="event"``: a result for each event and window, with the aggregates up to that event."""
    events = random_events(seed, 40, 4, disorder)
    job = Job("each", parallelism=parallelism)
    to = NumberedInCount if window.by_count else NumberedInTime
    seen = job.source(ListSource([], Seen), id="in", time="at")
    seen.window(window, key="key", emit="event", id="w").aggregate(to, **RUNNING).sink(NONE, id="out")
    rows = run(job, {"in": events}, seed=seed, epoch_events=cut).outputs["out"]
    found = Counter(
        (
            one.number,
            one.key,
            one.window_number if window.by_count else microseconds(one.window_start),
            one.events,
            one.total,
        )
        for one in rows
    )
    assert found == Counter(Oracle(Case(window), events).running(tuple(RUNNING)))


def sessions_one_by_one(events: list[Seen], gap: timedelta) -> Counter[Any]:
    """The session of each event, as far as it was known then: the plainest computation."""
    sessions: dict[str | None, list[list[Seen]]] = {}
    found: Counter[Any] = Counter()
    latest: datetime | None = None
    for event in events:
        if latest is None or event.at + gap > latest:
            mine, others = [event], []
            for one in sessions.get(event.key, []):
                touches = min(e.at for e in one) - gap <= event.at <= max(e.at for e in one) + gap
                (mine if touches else others).extend(one if touches else [one])  # type: ignore[arg-type]
            sessions[event.key] = [*others, mine]
            found[event.number, event.key, min(e.at for e in mine), len(mine), sum(e.number for e in mine)] += 1
        latest = event.at if latest is None else max(latest, event.at)
    return found


@given(seed=SEEDS, disorder=st.sampled_from([0, 9, 40]), parallelism=st.integers(1, 3), cut=CUTS)
@FEW
def test_each_event_has_the_session_so_far(seed: int, disorder: int, parallelism: int, cut: int) -> None:
    events = random_events(seed, 40, 4, disorder)
    job = Job("each", parallelism=parallelism)
    seen = job.source(ListSource([], Seen), id="in", time="at")
    made = seen.window(Session("5s"), key="key", emit="event", id="w").aggregate(NumberedInTime, **RUNNING)
    made.sink(NONE, id="out")
    rows = run(job, {"in": events}, seed=seed, epoch_events=cut).outputs["out"]
    found = Counter((one.number, one.key, one.window_start, one.events, one.total) for one in rows)
    assert found == sessions_one_by_one(events, timedelta(seconds=5))


@pytest.mark.slow(kind=["uneven", "fixed", "fixed count", "sliding count"])
@pytest.mark.parametrize("kind", [name for name in KINDS if name != "session"])
@given(seed=SEEDS, lateness=st.sampled_from([0, 7]), parallelism=st.integers(1, 3), cut=CUTS)
@FEW
def test_an_epoch_emits_what_has_changed(kind: str, seed: int, lateness: int, parallelism: int, cut: int) -> None:
    check_epochs(KINDS[kind], seed, lateness, parallelism, cut)


def check_epochs(window: Window, seed: int, lateness: int, parallelism: int, cut: int) -> None:
    """``emit="epoch"``: the last result of each window is its state at the end, and no result comes without a change."""
    events = random_events(seed, 40, 4, 20)
    case = Case(window, 0 if window.by_count else lateness)
    result = run(job_of(case, parallelism, emit="epoch"), {"in": events}, seed=seed, epoch_events=cut)
    assert last_of_each(rows_of(result)) == set(plain(Oracle(case, events).open_windows(NAMES)))
    assert len(rows_of(result)) == len(set(rows_of(result))), "a window that has not changed does not emit"


class AtThree(Trigger[Any]):
    def fires(self, result: Any) -> bool:
        return bool(result.events == 3)


@pytest.mark.slow(kind=["uneven", "sliding", "session", "fixed count", "sliding count"])
@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS, lateness=st.sampled_from([0, 7]), cut=CUTS)
@FEW
def test_a_trigger_adds_results(kind: str, seed: int, lateness: int, cut: int) -> None:
    window, events = KINDS[kind], random_events(seed, 40, 3, 9)
    case = Case(window, 0 if window.by_count else lateness)
    result = run(job_of(case, 2, trigger=AtThree()), {"in": events}, seed=seed, epoch_events=cut)
    oracle = Oracle(case, events)
    wanted = set(plain(oracle.results(NAMES)))
    found = rows_of(result)
    # A result at three events is there for every window that came to three; a correction may repeat one.
    assert wanted <= set(found)
    if kind != "session":
        threes = Counter(row[1:3] for row in oracle.running(("events",)) if row[3] == 3)
        assert {(row[0], row[1]) for row in found if row[3] == 3} == set(threes)
        if not case.lateness:
            assert len(found) == len(threes) + len(wanted) - sum(window.by_count and row[3] == 3 for row in wanted)


class Tens(Assigner):
    """Windows of ten seconds, as `Fixed("10s")`, and one of a minute that has them."""

    def assign(self, times: Any, events: pa.RecordBatch) -> Any:
        rows, starts = np.arange(len(times)), times // 10_000_000 * 10_000_000
        minutes = times // 60_000_000 * 60_000_000
        return np.tile(rows, 2), np.append(starts, minutes), np.append(starts + 10_000_000, minutes + 60_000_000)


@pytest.mark.slow(emit=["epoch", "event"])
@pytest.mark.parametrize("emit", ["close", "epoch", "event"])
@given(seed=SEEDS, lateness=st.sampled_from([0, 7]), cut=CUTS)
@FEW
def test_a_users_own_windows(emit: Any, seed: int, lateness: int, cut: int) -> None:
    events = random_events(seed, 25, 4, 20)
    results = []
    for window in (Fixed("10s"), Tens()):
        job = job_of(Case(window, lateness), 2, emit=emit)
        results.append(run(job, {"in": events}, seed=seed, epoch_events=cut))
    fixed, both = (Counter(rows_of(one)) for one in results)
    late = [one.number for one in results[1].outputs["late"]]
    assert set(late) <= {one.number for one in results[0].outputs["late"]}, "late for all windows, also of a minute"
    short = Counter({row: n for row, n in both.items() if row[2] - row[1] == 10_000_000})
    assert short == fixed


@given(seed=SEEDS, partitions=st.integers(1, 3), parallelism=st.integers(1, 3), cut=CUTS)
@FEW
def test_a_window_over_everything(seed: int, partitions: int, parallelism: int, cut: int) -> None:
    events = random_events(seed, 40, 4, 20)
    job = Job("all", parallelism=parallelism)
    seen = job.source(ListSource([], Seen), id="in", time="at")
    for window, name in ((Sliding("10s", "5s"), "reduced"), (Session("5s"), "session")):
        seen.window(window, id=name).aggregate(Everything, total=sum_of("number")).sink(NONE, id=f"{name}-out")
    seen.window(Fixed("10s"), emit="event", id="each").aggregate(NumberedInAll, **RUNNING).sink(NONE, id="each-out")
    outputs = run(job, {"in": events}, seed=seed, epoch_events=cut, partitions=partitions).outputs
    for window, name in ((Sliding("10s", "5s"), "reduced"), (Session("5s"), "session")):
        wanted = Counter(plain(Oracle(Case(window, 0, partitions, None), events).results(("total",))))
        rows = outputs[f"{name}-out"]
        assert Counter(("", microseconds(r.window_start), microseconds(r.window_end), r.total) for r in rows) == wanted
    if partitions == 1:
        found = Counter((r.number, "", microseconds(r.window_start), r.events, r.total) for r in outputs["each-out"])
        assert found == Counter(Oracle(Case(Fixed("10s"), 0, 1, None), events).running(tuple(RUNNING)))


class NumberedInAll(Event):
    number: int
    events: int
    total: int
    window_start: datetime


@pytest.mark.slow(kind=["uneven", "sliding"])
@pytest.mark.parametrize("kind", TIME_KINDS)
@given(seed=SEEDS, disorder=st.sampled_from([3, 12]), parallelism=st.integers(1, 3), cut=st.sampled_from([1, 3, 60]))
@FEW
def test_aggregates_by_order_of_arrival(kind: str, seed: int, disorder: int, parallelism: int, cut: int) -> None:
    events = random_events(seed, 40, 2, disorder)
    job = Job("ordered", parallelism=parallelism)
    seen = job.source(ListSource([], Seen), id="in", time="at")
    made = seen.window(KINDS[kind], key="key", lateness="3s", id="w").aggregate(Ordered, **ORDERED)
    made.sink(NONE, id="out")
    rng = random.Random(seed)
    result = run(job, {"in": events}, seed=seed, epoch_events=cut, crash_at=rng.randint(1, 200))
    wanted = plain(Oracle(Case(KINDS[kind], 3), events).results(tuple(ORDERED)))
    assert last_of_each(rows_of(result, tuple(ORDERED))) == set(wanted)


def test_times_before_1970() -> None:
    for window in TIME_KINDS.values():
        case, events = Case(window, 3, 2), random_events(7, 60, 4, 12, base=-1_767_225_600 - 60)
        assert events[0].at.year == 1969 or events[0].at.year == 1970
        check(case, events, run(job_of(case, 2), {"in": events}, seed=7, epoch_events=9, partitions=2))


class Key(Event):
    key: str | None
    window_start: datetime


def test_windows_without_aggregates() -> None:
    """The keys that have an event in each window."""
    events = random_events(2, 40, 4, 9)
    job = Job("keys", parallelism=2)
    seen = job.source(ListSource([], Seen), id="in", time="at")
    for name, window in TIME_KINDS.items():
        seen.window(window, key="key", id=name).aggregate(Key).sink(NONE, id=f"{name}-out")
    outputs = run(job, {"in": events}, seed=2, epoch_events=9).outputs
    for name, window in TIME_KINDS.items():
        found = {(row.key, microseconds(row.window_start)) for row in outputs[f"{name}-out"]}
        assert found == {row[:2] for row in Oracle(Case(window), events).results(("events",))}


# ---- processing time ---------------------------------------------------------------------------------------------------


class Arrived(Event):
    key: str | None
    window_start: datetime
    window_end: datetime
    events: int


@pytest.mark.parametrize("window", [Fixed("10s"), Session("5s")], ids=["fixed", "session"])
@pytest.mark.parametrize("emit", ["close", "event"])
def test_windows_by_processing_time(window: Window, emit: Any) -> None:
    job = Job("arrivals", parallelism=2)
    seen = job.source(ListSource([], Seen), id="in")
    made = seen.window(window, key="key", clock="processing", emit=emit, id="w").aggregate(Arrived, events=count())
    made.sink(NONE, id="out")
    one = Seen("a", 1, None, START)
    result = run(job, {"in": [one, one, Pause(60), *[one] * 6, Pause(60), *[one] * 6]}, seed=1, epoch_events=1)
    rows, kept = result.outputs["out"], list(result.states["w"].values())
    assert all(row.window_start < row.window_end for row in rows)
    if emit == "event":
        last = {row.window_start: row.events for row in rows}
        assert len(rows) == sum(last.values()) == 14
    else:
        assert len({row.window_start for row in rows}) == len(rows) >= 2
        assert sum(row.events for row in rows) + sum(record.events for record in kept) == 14


# ---- a user's own aggregate ----------------------------------------------------------------------------------------------


class Spread(Aggregate[Seen, list[int], int]):
    """The difference of the largest and the smallest number."""

    def create(self) -> list[int]:
        return []

    def add(self, state: list[int], event: Seen) -> list[int]:
        if event.number == 13:
            raise ValueError("an unlucky number")
        return [min([*state, event.number]), max([*state, event.number])]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return [min(left[0], right[0]), max(left[1], right[1])]

    def result(self, state: list[int]) -> int:
        return state[1] - state[0]


class Spreads(Event):
    key: str | None
    window_start: datetime
    events: int
    spread: int


@pytest.mark.parametrize("emit", ["close", "event"])
def test_a_failing_aggregate_costs_one_event(emit: Any) -> None:
    events = random_events(3, 40, 3, 0)
    job = Job("spreads", parallelism=2)
    seen = job.source(ListSource([], Seen), id="in", time="at")
    windowed = seen.window(Fixed("10s"), key="key", emit=emit, id="w")
    windowed.aggregate(Spreads, on_error="dead-letter", events=count(), spread=Spread()).sink(NONE, id="out")
    result = run(job, {"in": events}, seed=1, epoch_events=50)
    kept = [event for event in events if event.number != 13]
    assert len(kept) < len(events)
    assert len(result.letters) == len(events) - len(kept)
    wanted = {}
    for event in kept:
        start = microseconds(event.at) // 10_000_000 * 10_000_000
        wanted.setdefault((event.key, start), []).append(event.number)
    last = {(row.key, microseconds(row.window_start)): (row.events, row.spread) for row in result.outputs["out"]}
    assert last
    for where, found in last.items():
        numbers = wanted[where]
        assert found == (len(numbers), max(numbers) - min(numbers))


# ---- top -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("emit", ["close", "epoch"])
@given(
    seed=SEEDS, lateness=st.sampled_from([0, 7]), partitions=st.integers(1, 2), parallelism=st.integers(1, 3), cut=CUTS
)
@FEW
def test_the_top_of_each_window(
    emit: Any, seed: int, lateness: int, partitions: int, parallelism: int, cut: int
) -> None:
    check_top(emit, seed, lateness, partitions, parallelism, cut)


def check_top(emit: Any, seed: int, lateness: int, partitions: int, parallelism: int, cut: int) -> None:
    events = random_events(seed, 40, 6, 15)
    job = Job("trending", parallelism=parallelism)
    seen = job.source(ListSource([], Seen), id="in", time="at")
    windowed = seen.window(Sliding("10s", "5s"), key="key", lateness=f"{lateness}s", emit=emit, id="w")
    windowed.aggregate(TimeSummary, **AGGREGATES).top(2, by="events", id="top").sink(NONE, id="out")
    rows = run(job, {"in": events}, seed=seed, epoch_events=cut, partitions=partitions).outputs["out"]
    oracle = Oracle(Case(Sliding("10s", "5s"), lateness, partitions), events)
    windows: dict[Any, list[Any]] = {}
    for row in oracle.results(NAMES) if emit == "close" else oracle.open_windows(NAMES):
        windows.setdefault(row[1], []).append((-row[3], row[0] is None, row[0] or "", row[0]))
    wanted = {
        (start, rank): (one[3], -one[0])
        for start, all_ in windows.items()
        for rank, one in enumerate(sorted(all_)[:2], 1)
    }
    assert {(microseconds(row.window_start), row.rank): (row.key, row.events) for row in rows} == wanted


# ---- windows of windows ----------------------------------------------------------------------------------------------------


class PerMinute(Event):
    window_start: datetime
    window_end: datetime
    most: int


@given(seed=SEEDS, partitions=st.integers(1, 2), parallelism=st.integers(1, 3), cut=CUTS)
@FEW
def test_windows_of_windows(seed: int, partitions: int, parallelism: int, cut: int) -> None:
    """What closes with a window is in time for the next one."""
    events = random_events(seed, 60, 3, 9)
    job = Job("twice", parallelism=parallelism)
    seen = job.source(ListSource([], Seen), id="in", time="at")
    first = seen.window(Fixed("10s"), key="key", id="first").aggregate(TimeSummary, **AGGREGATES)
    second = first.window(Fixed("30s"), time="window_start", id="second").aggregate(PerMinute, most=max_of("events"))
    second.sink(NONE, id="out")
    second.channel("late").sink(NONE, id="late")
    outputs = run(job, {"in": events}, seed=seed, epoch_events=cut, partitions=partitions).outputs
    oracle, wanted = Oracle(Case(Fixed("10s"), 0, partitions), events), {}
    for row in oracle.results(NAMES):
        start = row[1] // 30_000_000 * 30_000_000
        if oracle.minimum is not None and start + 30_000_000 <= oracle.minimum:
            wanted[start] = max(wanted.get(start, 0), row[3])
    assert {microseconds(row.window_start): row.most for row in outputs["out"]} == wanted
    assert not outputs["late"]


class Passing(Operator[Seen, Seen]):
    """Whole batches: its events come from no row."""

    def apply_batch(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        collector.emit_batch(batch)


@pytest.mark.parametrize("emit", ["close", "event"])
def test_events_that_come_from_no_row_are_judged_by_the_minimum(emit: Any) -> None:
    job = Job("batches")
    seen = job.source(ListSource([], Seen), id="in", time="at").apply(Passing(), id="batches")
    made = seen.window(Fixed("10s"), key="key", time="at", emit=emit, id="w").aggregate(TimeSummary, **AGGREGATES)
    made.sink(NONE, id="out")
    made.channel("late").sink(NONE, id="late")
    events = [Seen("a", n, None, START + timedelta(seconds=at)) for n, at in enumerate((0, 5, 20, 1, 15))]
    outputs = run(job, {"in": events}, epoch_events=1).outputs
    assert [(one.number, one.late_by, one.late_reason) for one in outputs["late"]] == [
        (3, 10.0, "late"),
        (4, 0.0, "late"),
    ]
    assert [row.events for row in outputs["out"]] == ([2] if emit == "close" else [1, 2, 1])
