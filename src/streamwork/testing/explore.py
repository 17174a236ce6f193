"""Searching for a schedule or a crash that changes what a job does."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamwork.job import Job
from streamwork.testing.simulation import Guards, Result, run

REPLAY = "STREAMWORK_REPLAY"
Check = Callable[[Result, Result], None]  # what a run without trouble gave, what this one gave; raises if that is wrong


def same_results(plain: Result, result: Result) -> None:
    """Every sink has the same rows, in any order, and every component the same state."""
    for sink, rows in plain.outputs.items():
        wanted, found = Counter(map(repr, rows)), Counter(map(repr, result.outputs[sink]))
        assert found == wanted, f"sink {sink}: missing {dict(wanted - found)}, too many {dict(found - wanted)}"
    assert result.states == plain.states, f"state: {result.states} instead of {plain.states}"


def explore(
    job: Job,
    inputs: Mapping[str, Sequence[Any]],
    seeds: int = 1000,
    crashes: int = 2,
    partitions: int = 1,
    check: Check = same_results,
    guards: Guards | None = None,
) -> int:
    """Run the job under `seeds` schedules, each with up to `crashes` crashes at seeded steps. Returns how many crashes there were.

    The first run that `check` does not like is told with the command that replays it alone.
    """
    plain = run(job, inputs, seed=0, partitions=partitions)
    struck = 0
    for seed in _seeds(seeds):
        rng = random.Random(seed)
        crash_at = sorted(rng.randint(1, max(1, plain.steps)) for _ in range(rng.randint(0, crashes)))
        try:
            result = run(job, inputs, seed, crash_at, partitions=partitions, guards=guards)
            check(plain, result)
        except Exception as error:
            error.add_note(f"seed {seed}, crashes at steps {crash_at}; replay with: {_command(seed)}")
            raise
        struck += result.lives - 1
    return struck


def _seeds(count: int) -> Sequence[int]:
    asked = os.environ.get(REPLAY)
    return [int(asked)] if asked else range(1, count + 1)


def _command(seed: int) -> str:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    return f"{REPLAY}={seed} python -m pytest '{test}'" if test else f"{REPLAY}={seed} python YOUR_PROGRAM.py"
