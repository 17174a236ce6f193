"""Random appends, rolls, retention, seeks, full disks and crashes, against a plain list."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log.model import OPERATIONS, Case, as_case, play

CASES = st.builds(
    Case,
    fsync=st.sampled_from(["always", "interval", "never"]),
    seed=st.integers(0, 2**32),
    operations=st.lists(
        st.tuples(st.sampled_from([*OPERATIONS, "append", "append"]), st.integers(0, 10_000)), max_size=40
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(CASES)
def test_the_log_is_what_the_list_says(case: Case) -> None:
    play(case)


def random_case(seed: int, honest: bool = True) -> Case:
    rng = random.Random(seed)
    names = [*OPERATIONS, *["append"] * 6]
    operations = [(rng.choice(names), rng.randrange(10_000)) for _ in range(60)]
    return Case(rng.choice(["always", "interval", "never"]), seed, operations, honest)


@pytest.mark.slow(seed=list(range(10, 40)))
@pytest.mark.parametrize("seed", range(int(os.environ.get("LOG_SEEDS", "40"))))
def test_long_lives(seed: int) -> None:
    play(random_case(seed))


def test_replay() -> None:
    if (text := os.environ.get("LOG_CASE")) is None:
        pytest.skip("LOG_CASE holds no case")
    play(as_case(text))


def test_negative_control_a_disk_that_lies_about_syncs_is_noticed() -> None:
    noticed = 0
    for seed in range(30):
        try:
            play(random_case(seed, honest=False))
        except Exception as error:
            assert "play it again" in error.__notes__[-1]
            noticed += 1
    assert noticed > 10
