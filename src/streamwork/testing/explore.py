"""`explore`: searches for a schedule or a crash that changes the results of a job."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamwork.job import Job
from streamwork.testing.simulation import Guards, Result, run

REPLAY = "STREAMWORK_REPLAY"
MOST_EVENTS = 12  # per partition and epoch
Check = Callable[
    [Result, Result], None
]  # compares the result of a run without faults with another result; raises on a difference


def same_results(plain: Result, result: Result) -> None:
    """Check that every sink has the same rows, in any order, and every component the same state."""
    newest_rows({})(plain, result)


def newest_rows(keys: Mapping[str, Sequence[str]]) -> Check:
    """A check for sinks that get updates, such as corrections of windows: how many there are depends on the checkpoints.

    `keys`: sink -> the fields that its newest rows are compared by. Other sinks, and the states, are compared as by default.
    """

    def check(plain: Result, result: Result) -> None:
        for sink, rows in plain.outputs.items():
            wanted, found = (_compared(some, keys.get(sink)) for some in (rows, result.outputs[sink]))
            assert found == wanted, f"sink {sink}: missing {dict(wanted - found)}, too many {dict(found - wanted)}"
        assert result.states == plain.states, f"state: {result.states} instead of {plain.states}"

    return check


def _compared(rows: Sequence[Any], key: Sequence[str] | None) -> Counter[str]:
    """All rows; with a key, the newest of each."""
    newest = rows if key is None else {tuple(getattr(row, field) for field in key): row for row in rows}.values()
    return Counter(map(repr, newest))


@dataclass(frozen=True)
class Explored:
    """The extent of an exploration."""

    seeds: int
    runs: int  # for each seed one without a crash and one with crashes
    checkpoints: int  # completed, over all runs
    crashes: int
    resumes: int  # restarts that restored state from a checkpoint

    def __str__(self) -> str:
        said = (
            f"explored {self.seeds} seeds: {self.runs} runs, {self.checkpoints} checkpoints, {self.crashes} crashes, "
            f"{self.resumes} restarts from a checkpoint"
        )
        return said if self.resumes else f"{said}; no state was restored: pass more events or more seeds"


def explore(
    job: Job,
    inputs: Mapping[str, Sequence[Any]],
    seeds: int = 100,
    crashes: int = 2,
    partitions: int = 1,
    check: Check = same_results,
    guards: Guards | None = None,
) -> Explored:
    """Search for a schedule or a crash that changes the results of the job. Returns the extent of the search.

    Each seed chooses a schedule and the boundaries of the epochs: at least two epochs, if the input has two events per
    partition. The job runs once without a crash, and once with 1 to `crashes` crashes at steps of that run.
    `check` gets the result of a run without faults and each of these results. An error that it raises carries the command that
    replays the failing seed.
    """
    plain = run(job, inputs, seed=0, partitions=partitions)
    sources = [node.id for node in job.graph().sources]
    longest = max(plain.processed.get(name, 0) // (partitions if name in inputs else 1) for name in sources)
    results: list[Result] = []
    asked = _seeds(seeds)
    for seed in asked:
        rng = random.Random(seed)
        size = rng.randint(1, min(MOST_EVENTS, max(1, longest // 2)))
        crash_at: list[int] = []
        try:
            for count in (0, rng.randint(1, crashes) if crashes else 0):
                steps = results[-1].steps if count else 1
                crash_at = sorted(rng.randint(1, steps) for _ in range(count))
                result = run(job, inputs, seed, crash_at, size, partitions, guards=guards)
                check(plain, result)
                results.append(result)
        except Exception as error:
            error.add_note(f"seed {seed}, crashes at steps {crash_at}; replay with: {_command(seed)}")
            raise
    return Explored(
        seeds=len(asked),
        runs=len(results),
        checkpoints=sum(len(result.checkpoints) for result in results),
        crashes=sum(result.lives - 1 for result in results),
        resumes=sum(at > 0 for result in results for at in result.resumed_at),
    )


def _seeds(count: int) -> Sequence[int]:
    asked = os.environ.get(REPLAY)
    return [int(asked)] if asked else range(1, count + 1)


def _command(seed: int) -> str:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    return f"{REPLAY}={seed} python -m pytest '{test}'" if test else f"{REPLAY}={seed} python YOUR_PROGRAM.py"
