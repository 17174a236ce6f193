"""The benchmark of lambda runs, and reports nothing if an answer is wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from streamwork.bench import lambdas as bench
from streamwork.bench.contest import Wrong
from streamwork.bench.lambda_job import EXACTLY_ONCE, STREAM

SMALLEST = msgspec.structs.replace(bench.QUICK, events=600, slice_size=200, cards=9)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    told: list[str] = []
    found = bench.run(tmp_path, SMALLEST, told.append)
    assert found["cpu_ratio_vs_exactly_once"] > 0 and found["batch_growth"] > 0
    assert found["ways"]["batch"]["events_read"] == 3 * 600 and found["ways"]["stream"]["events_read"] == 2 * 600
    assert 0 < found["wrong"]["lambda_after_kill"] <= 200, "a checkpoint's events, at most"
    assert found["wrong"]["exactly_once_after_kill"] == 0
    assert found["get_ms"]["merged"] > 0 and found["get_ms"]["exactly_once"] > 0
    assert len(told) == 2 * 3 + 1 and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_no_figure_for_a_wrong_answer(tmp_path: Path) -> None:
    """The negative control: an event that only the oracle knows."""
    contest = bench.Contest(tmp_path, SMALLEST, lambda line: None)
    contest._append()
    for way in (STREAM, EXACTLY_ONCE):
        contest._life(way)
    contest._check(contest._merged(), "the merged view")
    contest._amounts[0] += 1
    for answers in (contest._merged(), contest._exact()):
        with pytest.raises(Wrong, match="1 of 9 cards are wrong"):
            contest._check(answers, "the answers")
