"""Joins in whole jobs equal DuckDB's: any cut, crashes, parallelism, fused and exchanged."""

from __future__ import annotations

import random
from typing import Any

import pytest

from operators.join_jobs import (
    expected_as_of,
    expected_within,
    found,
    inputs,
    on_arrival,
    ordered,
    random_rows,
    two_streams,
    with_itself,
    with_table,
    with_two_tables,
    with_windows,
    written,
)
from operators.join_oracle import Click, Oracle, Row, seconds
from sample import run_job
from streamwork import ListSource
from streamwork.testing import run

KEYS = (None, "a", "bb", "ccc", "d")
SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))]


def replay(name: str, seed: int) -> str:
    return f'python -m pytest "tests/operators/test_joins_in_jobs.py::{name}[{seed}]"'


def counted_late(ran, component):
    """Without input there are no epochs, and nothing is counted."""
    return ran.counts[component]["late"] if ran.counts else 0


@pytest.mark.parametrize("seed", SEEDS)
def test_two_streams(duck, seed):
    chosen = random.Random(seed)
    how, within, lateness = (
        chosen.choice(("inner", "left", "right", "full")),
        chosen.randint(0, 6),
        chosen.randint(0, 4),
    )
    partitions, parallelism = chosen.randint(1, 3), chosen.randint(1, 3)
    keys = KEYS if seed % 3 else KEYS[1:2]
    rows = random_rows(seed, chosen.randint(0, 80), partitions, keys, chosen.randint(0, 9))
    job = two_streams(how, within, lateness, parallelism)
    ran = run(job, inputs(rows), seed=seed, partitions=partitions, crash_at=chosen.sample(range(40, 400), 2))
    expected = expected_within(Oracle(duck, rows, partitions), how, within, lateness)
    assert found(ran.outputs, "right") == expected, replay("test_two_streams", seed)
    assert counted_late(ran, "attribution") == len(expected["late"]) + len(expected["late-right"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_and_a_table(duck, seed):
    chosen = random.Random(seed)
    how = chosen.choice(("inner", "left", "right", "full"))
    history, lateness = chosen.randint(0, 6), chosen.randint(0, 4)
    partitions, parallelism = chosen.randint(1, 3), chosen.randint(1, 3)
    keys = KEYS if seed % 3 else KEYS[1:2]
    rows = random_rows(seed, chosen.randint(0, 80), partitions, keys, chosen.randint(0, 9))
    job = with_table(how, history, lateness, parallelism)
    ran = run(job, inputs(rows), seed=seed, partitions=partitions, crash_at=chosen.sample(range(40, 400), 2))
    expected = expected_as_of(Oracle(duck, rows, partitions), how, history, lateness)
    assert found(ran.outputs, "quotes") == expected, replay("test_a_stream_and_a_table", seed)
    assert counted_late(ran, "priced") == len(expected["late"])
    assert counted_late(ran, "quotes") == len(expected["late-right"])


def a_run(seed: int) -> tuple[list[Row], int, int, dict[str, Any]]:
    """(rows, partitions, parallelism, how it is run), chosen by a seed."""
    chosen = random.Random(seed)
    partitions, parallelism = chosen.randint(1, 3), chosen.randint(1, 3)
    rows = random_rows(seed, chosen.randint(0, 120), partitions, KEYS, chosen.randint(0, 9))
    crashes = chosen.sample(range(40, 400), 2)
    return rows, partitions, parallelism, {"seed": seed, "partitions": partitions, "crash_at": crashes}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_of_windows(duck, seed):
    rows, partitions, parallelism, options = a_run(seed)
    how = ("inner", "left")[seed % 2]
    ran = run(with_windows(how, 4, parallelism), inputs(rows), **options)
    out = ordered((e.user, seconds(e.at), e.page, seconds(e.window_end), e.purchases) for e in ran.outputs["out"])
    assert out == ordered(Oracle(duck, rows, partitions).windows(how, 4)), replay("test_a_table_of_windows", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_tables(duck, seed):
    rows, partitions, parallelism, options = a_run(seed)
    ran = run(with_two_tables(parallelism), inputs(rows), **options)
    out = ordered((e.user, seconds(e.at), e.page, e.price, e.large_price) for e in ran.outputs["out"])
    expected = ordered(
        (*row[:3], *(None if v is None or v % 5 == 0 else float(v) for v in row[3:]))
        for row in Oracle(duck, rows, partitions).both(9)
    )
    assert out == expected, replay("test_two_tables", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_with_itself(duck, seed):
    rows, partitions, parallelism, options = a_run(seed)
    left = [row for row in rows if row.input == "left"]
    twice = [one for row in left for one in (row, row._replace(input="right"))]
    ran = run(with_itself(3, parallelism), {"left": inputs(left)["left"]}, **options)
    out = ordered((e.user, seconds(e.at), e.page, seconds(e.left_at), e.left_page) for e in ran.outputs["out"])
    expected = Oracle(duck, twice, partitions).within("inner", 3)
    assert out == ordered(expected), replay("test_a_stream_with_itself", seed)


def test_without_event_time_rows_meet_the_table_that_is_there(tmp_path):
    """The table is restored from a checkpoint; a join on arrival keeps nothing."""
    outcomes = []
    rows = [Row("right", 0, "a", 5, 1), Row("right", 0, "a", 3, 2), Row("right", 0, "bb", 1, 3)]
    for clicks in ([], [Row("left", 0, key, 9, 1) for key in ("a", "bb", "ccc", None)]):
        job = on_arrival(
            ListSource([row.event for row in clicks], Click), ListSource([row.event for row in rows]), tmp_path
        )
        outcomes.append(run_job(job, tmp_path / "root").started)
    assert outcomes == ["new", "resumed at checkpoint 1"]
    found = [(e.user, e.price) for e in written(job, tmp_path)["out"]]
    assert ordered(found) == ordered([("a", 2.0), ("bb", 3.0), ("ccc", None), (None, None)])
    assert not (tmp_path / "root" / "arrival" / "state" / "joined").exists()
