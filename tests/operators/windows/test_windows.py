"""Windows equal a plain DuckDB computation over the whole input, wherever epochs are cut, with crashes, in any parallelism."""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.windows.oracle import (
    AGGREGATES,
    EXAMPLES,
    Case,
    CountSummary,
    Oracle,
    Seen,
    TimeSummary,
    random_events,
)
from streamwork import Fixed, FixedCount, Job, ListSource, Session, Sliding, SlidingCount, SqliteSink
from streamwork.components.times import microseconds
from streamwork.operators.windows import Window
from streamwork.testing import Result, run

NONE = SqliteSink("never-opened.db", "t")
NAMES = tuple(AGGREGATES)
KINDS: dict[str, Window] = {
    "fixed": Fixed("10s"),
    "sliding": Sliding("10s", "5s"),
    "uneven": Sliding("10s", "4s"),
    "session": Session("5s"),
    "fixed count": FixedCount(3),
    "sliding count": SlidingCount(5, 2),
    "one by one": FixedCount(1),
}


def job_of(case: Case, parallelism: int = 1, **options: Any) -> Job:
    job = Job("windows", parallelism=parallelism)
    seen = job.source(ListSource([], Seen), id="in", time="at")
    lateness = {} if case.window.by_count else {"lateness": f"{case.lateness}s"}
    windowed = seen.window(case.window, key=case.key, id="w", **lateness, **options)
    made = windowed.aggregate(CountSummary if case.window.by_count else TimeSummary, **AGGREGATES)
    made.sink(NONE, id="out")
    if not case.window.by_count:
        made.channel("late").sink(NONE, id="late")
    return job


def rows_of(result: Result, names: tuple[str, ...] = NAMES) -> list[tuple[Any, ...]]:
    return [_row(row, names) for row in result.outputs["out"]]


def _row(row: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if isinstance(row, CountSummary):
        where: tuple[Any, ...] = (row.key, row.window_number, row.window_number)
    else:
        where = (getattr(row, "key", ""), microseconds(row.window_start), microseconds(row.window_end))
    return (*where, *(_plain(getattr(row, name)) for name in names))


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def last_of_each(rows: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    return set({row[:3]: row for row in rows}.values())


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(map(_plain, row)) for row in rows]


def check(case: Case, events: list[Seen], result: Result) -> None:
    """The results of a run are those of the oracle; nothing vanishes."""
    oracle = Oracle(case, events)
    found, wanted = rows_of(result), plain(oracle.results(NAMES))
    if case.lateness:
        assert last_of_each(found) == set(wanted)
    else:
        assert Counter(found) == Counter(wanted)
    if not case.window.by_count:
        late = result.outputs["late"]
        assert Counter((one.number, one.late_by) for one in late) == Counter(oracle.late())
        assert all(one.late_reason == "late" for one in late)
        taken = sum(row[3] for row in oracle.open_windows(NAMES)) if isinstance(case.window, Fixed | Session) else None
        assert taken is None or len(events) == taken + len(late), "in == in windows + late"


@pytest.mark.parametrize("emit", ["close", "event"])
@pytest.mark.parametrize("read", [True, False], ids=["read", "not read"])
def test_late_events_are_counted(emit: Any, read: bool) -> None:
    """Also if no step reads their channel: in == in windows + late."""
    case, events = Case(Fixed("10s")), random_events(3, 60, 4, 40)
    job = Job("late", parallelism=2)
    seen = job.source(ListSource([], Seen), id="in", time="at")
    made = seen.window(case.window, key="key", emit=emit, id="w").aggregate(TimeSummary, **AGGREGATES)
    made.sink(NONE, id="out")
    if read:
        made.channel("late").sink(NONE, id="late")
    counts = run(job, {"in": events}, seed=3, epoch_events=9, crash_at=60).counts
    oracle = Oracle(case, events)
    late, taken = counts["w-reduce" if emit == "close" else "w"]["late"], oracle.open_windows(NAMES)
    assert late == len(oracle.late()) > 0
    assert len(events) == sum(row[3] for row in taken) + late
    assert sum(counted["late"] for counted in counts.values()) == late


def crashes(seed: int, count: int) -> list[int]:
    rng = random.Random(seed)
    return sorted(rng.randint(1, 400) for _ in range(count))


SEEDS = st.integers(0, 10**6)


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=SEEDS,
    size=st.integers(0, 40),
    keys=st.sampled_from([1, 4, 30]),
    disorder=st.sampled_from([0, 5, 40]),
    lateness=st.sampled_from([0, 7]),
    partitions=st.integers(1, 3),
    parallelism=st.integers(1, 3),
    cut=st.integers(1, 30),
    lives=st.integers(0, 2),
)
@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@example(0, 40, 4, 40, 7, 2, 2, 9, 1)
def test_windows_equal_duckdb(
    kind: str,
    seed: int,
    size: int,
    keys: int,
    disorder: int,
    lateness: int,
    partitions: int,
    parallelism: int,
    cut: int,
    lives: int,
) -> None:
    window = KINDS[kind]
    if window.by_count:
        lateness, partitions = 0, 1  # a key comes from one partition
    case = Case(window, lateness, partitions)
    events = random_events(seed, size, keys, disorder)
    result = run(
        job_of(case, parallelism),
        {"in": events},
        seed=seed,
        epoch_events=cut,
        partitions=partitions,
        crash_at=crashes(seed, lives),
    )
    check(case, events, result)


def trial(seed: int) -> None:
    """A random case of a random kind. To replay one: PYTHONPATH=tests python -m operators.windows.test_windows SEED"""
    rng = random.Random(seed)
    window = KINDS[rng.choice(list(KINDS))]
    lateness, partitions = rng.choice([0, 0, 3, 7, 30]), rng.randint(1, 3)
    if window.by_count:
        lateness, partitions = 0, 1
    case = Case(window, lateness, partitions)
    disorder, base = rng.choice([0, 5, 40]), rng.choice([0, -1_767_225_700])
    events = random_events(seed, rng.choice([5, 30, 120]), rng.choice([1, 4, 30]), disorder, base)
    job, lives = job_of(case, rng.randint(1, 3)), crashes(seed, rng.randint(0, 2))
    cut = rng.choice([1, 3, 10, 100])
    check(case, events, run(job, {"in": events}, seed=seed, epoch_events=cut, partitions=partitions, crash_at=lives))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_many_cases(first: int) -> None:
    for seed in range(first, first + 10):
        try:
            trial(seed)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}; to replay it: PYTHONPATH=tests python -m operators.windows.test_windows {seed}"
            ) from error


if __name__ == "__main__":
    trial(int(sys.argv[1]))
