"""A window behind a join: which results are in time does not depend on where the input is cut.

The oracle computes over the whole input at once, with loops: the pairs, the watermark of each, and the windows that take them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest

from operators.join_jobs import inputs, lists, random_rows, written
from operators.join_oracle import START, Click, Purchase, Row, seconds
from sample import run_job
from streamwork import CallableSink, Event, Fixed, Job, ListSource, ParquetSink, Sink, count
from streamwork.components.table_operator import NEVER
from streamwork.operators.joins import table_join, time_bounded
from streamwork.operators.joins.columns import WATERMARK, state_times
from streamwork.testing import run

SECOND = 1_000_000
SIZE = 10
KEYS = (None, "a", "bb")
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))]


class Pair(Event):
    user: str | None
    at: datetime
    left: int
    right: int


class Counted(Event):
    user: str | None
    window_end: datetime
    pairs: int


class Found(NamedTuple):
    """A result of a join; times are seconds, -1 where a side has no row. The watermark is microseconds."""

    key: str | None
    left: int
    right: int
    watermark: int | None

    @property
    def at(self) -> int:
        return self.right if self.left < 0 else self.left


class Shape(NamedTuple):
    """A join, and the window behind it. `lateness` is that of the join of two streams, or of the table."""

    how: str
    bound: int
    """`within`, or the history of the table."""
    lateness: int
    behind: int
    """The lateness of the window."""


# ---- the jobs ---------------------------------------------------------------------------------------------------------------


def sink(out: Path | None, name: str) -> Sink[Any]:
    return CallableSink(print) if out is None else ParquetSink(out / name)


def as_pair(right: str, row: Any) -> Pair:
    left_at, right_at = seconds(row.at), seconds(getattr(row, right))
    left, right_time = -1 if left_at is None else left_at, -1 if right_at is None else right_at
    return Pair(row.user, START + timedelta(seconds=Found(None, left, right_time, None).at), left, right_time)


def counted(job: Job, joined: Any, right: str, shape: Shape, out: Path | None) -> Job:
    pairs = joined.map(partial(as_pair, right), to=Pair, id="pairs")
    window = pairs.window(Fixed(f"{SIZE}s"), key="user", time="at", lateness=shape.behind, id="counted")
    made = window.aggregate(Counted, pairs=count())
    made.sink(sink(out, "counts"), id="counts")
    made.channel("late").sink(sink(out, "late"), id="late")
    return job


def behind_two_streams(shape: Shape, parallelism: int, sources: Any = None, out: Path | None = None) -> Job:
    job = Job("behind", parallelism=parallelism, checkpoint_every=0)
    left, right = sources or lists()
    clicks, purchases = job.source(left, id="left", time="at"), job.source(right, id="right", time="at")
    options: dict[str, Any] = {"within": shape.bound, "lateness": shape.lateness, "how": shape.how}
    return counted(job, clicks.join(purchases, key="user", id="joined", **options), "right_at", shape, out)


def behind_a_table(shape: Shape, parallelism: int, sources: Any = None, out: Path | None = None) -> Job:
    job = Job("behind", parallelism=parallelism, checkpoint_every=0)
    left, right = sources or lists()
    clicks, purchases = job.source(left, id="left", time="at"), job.source(right, id="right", time="at")
    table = purchases.table(key="user", history=shape.bound, lateness=shape.lateness, id="quotes")
    joined = clicks.join(table, key="user", as_of="at", how=shape.how, id="joined")
    return counted(job, joined, "quotes_at", shape, out)


# ---- the oracle -------------------------------------------------------------------------------------------------------------


class Came(NamedTuple):
    row: Row
    watermark: int | None
    """Seconds."""


def arrivals(rows: Sequence[Row], partitions: int) -> tuple[list[Came], list[Came], float]:
    """(left rows, right rows, the last minimum)"""
    marks: dict[tuple[str, int], int] = {}
    came = []
    for row in rows:
        lane = row.input, row.partition
        came.append(Came(row, marks.get(lane)))
        marks[lane] = max(row.time, marks.get(lane, row.time))
    minimum = min(marks.values()) if len(marks) == 2 * partitions else -np.inf
    return [one for one in came if one.row.input == "left"], [one for one in came if one.row.input == "right"], minimum


def latest(*marks: int | None) -> int | None:
    return max((mark * SECOND for mark in marks if mark is not None), default=None)


def of_two_streams(shape: Shape, rows: Sequence[Row], partitions: int) -> Iterator[Found]:
    how, within, lateness, _ = shape
    *sides, minimum = arrivals(rows, partitions)
    left, right = (
        [one for one in side if one.watermark is None or one.row.time + within + lateness > one.watermark]
        for side in sides
    )
    met = set()
    for a in left:
        for b in right:
            if a.row.key is not None and a.row.key == b.row.key and abs(a.row.time - b.row.time) <= within:
                met |= {id(a), id(b)}
                yield Found(a.row.key, a.row.time, b.row.time, latest(a.watermark, b.watermark))
    for side, ways in ((left, ("left", "full")), (right, ("right", "full"))):
        for one in side if how in ways else []:
            over = one.row.time + 2 * within + lateness
            if id(one) not in met and over <= minimum:
                times = (one.row.time, -1) if side is left else (-1, one.row.time)
                yield Found(one.row.key, *times, over * SECOND - 1)


def of_a_table(shape: Shape, rows: Sequence[Row], partitions: int) -> Iterator[Found]:
    how, history, lateness, _ = shape
    came, versions, minimum = arrivals(rows, partitions)
    begins: dict[str | None, set[int]] = {}
    for one in versions:
        if one.watermark is None or one.row.time + lateness >= one.watermark:
            begins.setdefault(one.row.key, set()).add(one.row.time)
    met = set()
    for one in came:
        key, time = one.row.key, one.row.time
        if one.watermark is not None and time + history < one.watermark:
            continue
        if time + lateness >= minimum:
            continue
        valid = max((begin for begin in begins.get(key, ()) if begin <= time and key is not None), default=-1)
        met.add((key, valid))
        if valid >= 0 or how in ("left", "full"):
            yield Found(key, time, valid, latest(one.watermark, time + lateness))
    rest = max(history, lateness)
    for key, starts in begins.items() if how in ("right", "full") else ():
        for begin, until in zip(sorted(starts), sorted(starts)[1:], strict=False):
            if until + rest < minimum and (key, begin) not in met:
                yield Found(key, -1, begin, (until + rest) * SECOND)


def expected(shape: Shape, found: Iterator[Found], minimum: float) -> tuple[dict[Any, int], Counter[Any]]:
    """(the last result of each window, the late pairs)"""
    windows, late = Counter[Any](), Counter[Any]()
    for one in found:
        end = (one.at // SIZE + 1) * SIZE
        by = -1 if one.watermark is None else one.watermark - (end + shape.behind) * SECOND
        if by >= 0:
            late[one.key, one.left, one.right, by / SECOND] += 1
        elif end <= minimum:
            windows[one.key, end] += 1
    return dict(windows), late


def seen(outputs: Any, shape: Shape) -> tuple[dict[Any, int], Counter[Any]]:
    windows = {(one.user, seconds(one.window_end)): one.pairs for one in outputs["counts"]}
    if not shape.behind:
        assert len(windows) == len(outputs["counts"]), "no result that is in time finds its window closed"
    late = Counter[Any]((one.user, one.left, one.right, one.late_by) for one in outputs["late"])
    return windows, late


JOBS = {"two streams": (behind_two_streams, of_two_streams), "a table": (behind_a_table, of_a_table)}


# ---- the smallest inputs ----------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """An input of one partition for each side, as (key, seconds), and what it gives."""

    kind: str
    shape: Shape
    left: list[tuple[str, int]]
    right: list[tuple[str, int]]
    windows: dict[Any, int]
    late: Any

    @property
    def events(self) -> dict[str, list[Any]]:
        sides = {"left": self.left, "right": self.right}
        return {side: [Row(side, 0, key, time, 1).event for key, time in rows] for side, rows in sides.items()}

    def results(self, epoch_events: int) -> tuple[Any, Any]:
        ran = run(JOBS[self.kind][0](self.shape, 1), self.events, epoch_events=epoch_events)
        return seen(ran.outputs, self.shape)

    def lives(self, folder: Path, halves: Sequence[tuple[int, int]]) -> Iterator[tuple[Any, Any]]:
        """What there is after each run of the local host, which reads so many events of each side in all."""
        given = self.events
        (folder / "out").mkdir(parents=True)
        for left, right in halves:
            sources = ListSource(given["left"][:left], Click), ListSource(given["right"][:right], Purchase)
            job = JOBS[self.kind][0](self.shape, 1, sources, folder / "out")
            run_job(job, folder / "root")
            yield seen(written(job, folder / "out"), self.shape)


# The pair of a at 8 and a at 9 is late by the right side's watermark, which is 12. Of the left side's it is not.
PAIR = Case(
    "two streams",
    Shape("inner", 5, 0, 0),
    [("z", 0), ("z", 1), ("a", 8), ("z", 40)],
    [("z", 12), ("a", 9), ("z", 40)],
    {},
    {("a", 8, 9, 2.0): 1},
)
# a at 8 is behind 13. If each epoch has one event of a side, the minimum is 9 then, and it does not wait. Else it waits until the
# minimum is beyond 8.
WAITING = Case(
    "a table",
    Shape("left", 6, 0, 0),
    [("z", 13), ("a", 8), ("z", 40)],
    [("z", 9), ("z", 40)],
    {("z", 20): 1},
    {("a", 8, -1, 3.0): 1},
)
CASES = [pytest.param(PAIR, id="two streams"), pytest.param(WAITING, id="a table")]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("epoch_events", [1, 2, 100])
def test_the_smallest_inputs(case: Case, epoch_events: int) -> None:
    assert case.results(epoch_events) == (case.windows, case.late)


@pytest.mark.parametrize("case", CASES)
def test_control_watermarks_that_are_not_kept_are_noticed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them, a result has the watermark of the row that completes it, or the time at which it stopped waiting."""
    monkeypatch.setattr(time_bounded, "put_watermarks", lambda *_: None)
    monkeypatch.setattr(table_join, "put_watermarks", lambda *_: None)
    assert case.results(1) != case.results(100)


# ---- state that was stored without watermarks -------------------------------------------------------------------------------


def without_watermarks(patch: pytest.MonkeyPatch) -> None:
    """Joins as they were before: their state has no such column."""
    made = time_bounded.make_record

    def former(name: str, fields: dict[str, Any], *rest: Any) -> Any:
        return made(name, {field: kind for field, kind in fields.items() if field != WATERMARK}, *rest)

    def unknown(state: Any, name: str, places: Any) -> Any:
        return np.full(len(places), NEVER) if name == WATERMARK else state_times(state, name, places)

    for module in (time_bounded, table_join):
        patch.setattr(module, "make_record", former)
        patch.setattr(module, "put_watermarks", lambda *_: None)
        patch.setattr(module, "state_times", unknown)


# The first run keeps the pair's right row, or the row that waits.
STORED = [
    pytest.param(PAIR, (2, 2), {("a", 10): 1}, id="two streams"),
    pytest.param(WAITING._replace(right=[("z", 5), ("z", 40)]), (2, 1), {("a", 10): 1, ("z", 20): 1}, id="a table"),
]


@pytest.mark.parametrize(("case", "first", "windows"), STORED)
def test_rows_that_were_stored_without_watermarks(
    case: Case, first: tuple[int, int], windows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result has the watermark of the row that completes it then, or the time at which it stops waiting."""
    whole = len(case.left), len(case.right)
    *_, fresh = case.lives(tmp_path / "fresh", [first, whole])
    assert fresh == (case.windows, case.late)
    lives = case.lives(tmp_path / "stored", [first, whole])
    with monkeypatch.context() as patch:
        without_watermarks(patch)
        next(lives)
    stored = pq.read_schema(next((tmp_path / "stored" / "root").rglob("state/joined/**/*.parquet")))
    assert WATERMARK not in stored.names and "join_time" in stored.names
    assert next(lives) == (windows, {})


# ---- random cuts ------------------------------------------------------------------------------------------------------------


def compare(kind: str, seed: int) -> tuple[Any, Any]:
    """(what a run with random cuts and crashes gives, what the oracle gives)"""
    chosen = random.Random(seed)
    how = chosen.choice(("inner", "left", "right", "full"))
    shape = Shape(how, chosen.randint(0, 6), chosen.randint(0, 4), chosen.choice((0, 0, 3)))
    partitions, parallelism = chosen.randint(1, 3), chosen.randint(1, 3)
    rows = random_rows(seed, chosen.randint(60, 160), partitions, KEYS, chosen.randint(0, 9))
    make, oracle = JOBS[kind]
    options: dict[str, Any] = {"partitions": partitions, "crash_at": chosen.sample(range(40, 400), 2)}
    ran = run(make(shape, parallelism), inputs(rows), seed=seed, **options)
    minimum = arrivals(rows, partitions)[2]
    return seen(ran.outputs, shape), expected(shape, oracle(shape, rows, partitions), minimum)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", JOBS)
def test_late_results_are_those_of_the_input(kind: str, seed: int) -> None:
    ran, oracle = compare(kind, seed)
    assert ran == oracle
