"""Joins in whole jobs equal DuckDB's: any cut, crashes, parallelism, fused and exchanged."""

from __future__ import annotations

import random

import pytest

from operators.join_jobs import (
    expected_as_of,
    expected_within,
    found,
    inputs,
    random_rows,
    two_streams,
    with_table,
)
from operators.join_oracle import Oracle
from streamwork.testing import run

KEYS = (None, "a", "bb", "ccc", "d")
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))]


def replay(name: str, seed: int) -> str:
    return f'python -m pytest "tests/operators/test_joins_in_jobs.py::{name}[{seed}]"'


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


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_and_a_table(duck, seed):
    chosen = random.Random(seed)
    how, history, lateness = chosen.choice(("inner", "left")), chosen.randint(0, 6), chosen.randint(0, 4)
    partitions, parallelism = chosen.randint(1, 3), chosen.randint(1, 3)
    keys = KEYS if seed % 3 else KEYS[1:2]
    rows = random_rows(seed, chosen.randint(0, 80), partitions, keys, chosen.randint(0, 9))
    job = with_table(how, history, lateness, parallelism)
    ran = run(job, inputs(rows), seed=seed, partitions=partitions, crash_at=chosen.sample(range(40, 400), 2))
    expected = expected_as_of(Oracle(duck, rows, partitions), how, history, lateness)
    assert found(ran.outputs, "quotes") == expected, replay("test_a_stream_and_a_table", seed)
