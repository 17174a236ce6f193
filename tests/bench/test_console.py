"""The benchmark of the console runs, checks every answer before it reports, and reports every number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamwork.bench import console as bench
from streamwork.bench.console import Sizes, Wrong
from streamwork.bench.console_root import ABANDONED, make_root
from streamwork.console.overviews import Overviews
from streamwork.observe.history import read_epochs
from streamwork.world import RealClock

SMALLEST = Sizes(jobs=2, epochs=150, starts=1, repeats=1)


def test_the_root_is_what_it_claims_to_be(tmp_path: Path) -> None:
    assert make_root(tmp_path / "root", 3, 150) == 150
    overview = Overviews(tmp_path / "root", RealClock()).read()
    assert [one.job for one in overview.jobs] == ["job-000", "job-001", "job-002"]
    for one in overview.jobs:
        assert one.running and one.checkpoint == 150 and one.problem == "" and one.abandoned == ABANDONED
        assert one.rate is not None and one.rate.reading > 0 and one.verdict is not None
        assert read_epochs(tmp_path / "root", one.job, 1000).kept == 150


def test_a_small_run(tmp_path: Path) -> None:
    told: list[str] = []
    numbers = bench.run(tmp_path, SMALLEST, told.append)
    for what in ("first_s", "repeated_s", "job_s", "epochs_s", "epoch_s"):
        assert numbers[what]["median"] > 0
    assert numbers["root_bytes"] > 0 and told and not list(tmp_path.iterdir())
    json.dumps(numbers)


def test_no_time_for_a_wrong_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a root with a checkpoint that is not the one that it should have."""
    real = make_root
    monkeypatch.setattr(bench, "make_root", lambda *given: real(*given) + 1)
    with pytest.raises(Wrong, match="the state of job-000"):
        bench.run(tmp_path, SMALLEST)
