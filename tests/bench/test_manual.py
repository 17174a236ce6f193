"""The benchmark of state by hand runs, and reports nothing if a count is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamwork.bench import manual as bench_manual
from streamwork.bench.contest import Wrong
from streamwork.bench.manual import Contest, Sizes
from streamwork.bench.manual_job import WAYS

SMALLEST = Sizes(events=300, cards=5, intervals=("10ms",), repeats=1)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    told: list[str] = []
    numbers = bench_manual.run(tmp_path, SMALLEST, told.append)
    for way in WAYS:
        assert numbers["intervals"]["10ms"][way]["events_per_s"] > 0
        assert 0 <= numbers[way]["computed_again"] <= 180, "no more than was there at the kill"
    assert len(told) == len(WAYS) and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_no_figure_for_a_wrong_count(tmp_path: Path) -> None:
    """The negative control."""
    contest = Contest(tmp_path, SMALLEST, lambda line: None)
    contest._wanted["c0"] = (1, 1)
    with pytest.raises(Wrong, match=r"the counts of 1 cards are wrong, such as \['c0'\]"):
        contest._run("by_hand", "10ms", 300, 0, 0)
