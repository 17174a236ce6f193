"""The benchmark of large states runs, checks all counts before it reports, and reports every number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamwork.__main__ import cli
from streamwork.bench import state_size as bench_state_size
from streamwork.bench.keyed_state_job import Counting
from streamwork.bench.state_size import Sizes, Wrong

SMALLEST = Sizes(changed=50, large=500, warm=1, epochs=4)


@pytest.mark.slow
@pytest.mark.spark
def test_a_small_run(tmp_path: Path, spark: Any) -> None:
    told: list[str] = []
    numbers = bench_state_size.run(tmp_path, SMALLEST, told.append)
    assert numbers["ratio"] > 0 and numbers["p99_ratio"] > 0
    for title in ("small", "large"):
        assert len(numbers["seconds"][title]["repeats"]) == SMALLEST.epochs
        assert numbers["epoch_ms"][title]["p50_ms"] <= numbers["epoch_ms"][title]["p99_ms"]
        assert numbers["state_files"][title]["deltas"] > 0
    assert numbers["peak_bytes"]["python workers"] > 10_000_000
    assert told[-1] == "checking the counts"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.spark
def test_no_time_for_a_wrong_count(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""

    class Forgetful(Counting):
        def apply(self, event: Any, state: Any, collector: Any) -> None:
            state.count += event.card != "7"

    monkeypatch.setattr(bench_state_size, "Counting", Forgetful)
    with pytest.raises(Wrong, match=r"the small state has 50 of 50 keys, and wrong counts: \[7\]"):
        bench_state_size.run(tmp_path, Sizes(changed=50, large=60, warm=0, epochs=1))


def test_the_command_prints_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_state_size, "run", lambda sizes, note: {"ratio": 1.0, "p99_ratio": 1.1})
    printed = CliRunner().invoke(cli, ["bench", "state-size", "--json"], catch_exceptions=False)
    assert printed.stdout.startswith("{") and '"p99_ratio"' in printed.stdout
