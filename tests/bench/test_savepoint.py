"""The benchmark of savepoints runs, checks every state before it reports, and reports every number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from streamwork.__main__ import cli
from streamwork.bench import savepoint as bench_savepoint
from streamwork.bench.savepoint import Saved, Sizes, Wrong
from streamwork.hosts.local import LocalHost
from streamwork.world import RealDisk

SMALLEST = Sizes(keys=300, events=60, warm=0, epochs=2, repeats=1, first=20)


@pytest.fixture
def on_the_local_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_savepoint, "start_spark", lambda master, log: None)
    monkeypatch.setattr(bench_savepoint, "SparkEpochs", lambda spark: LocalHost(RealDisk()))


def test_a_small_run(tmp_path: Path, on_the_local_host: None) -> None:
    told: list[str] = []
    numbers = bench_savepoint.run(tmp_path, SMALLEST, told.append)
    assert numbers["pause_ratio"] > 0 and numbers["savepoint_bytes"] > 0
    for kind in ("without", "with"):
        assert len(numbers["epoch_s"][kind]["repeats"]) == SMALLEST.epochs
    for one in (
        numbers["create_s"],
        numbers["create_at_rest_s"],
        numbers["rescale_2_to_8_s"],
        *numbers["start_s"].values(),
    ):
        assert one["median"] >= 0
    assert told[-1] == "at rest"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("what", ["measure_pauses", "create_at_rest", "start", "rescale"])
def test_no_time_for_a_wrong_count(
    tmp_path: Path, on_the_local_host: None, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The negative control: at each of the four places the counts are compared."""
    real = getattr(Saved, what)

    def tampered(saved: Any, *given: Any) -> Any:
        saved._counts[7] += 1
        if what == "rescale":
            saved._newest_counts[7] += 1
        return real(saved, *given)

    monkeypatch.setattr(Saved, what, tampered)
    with pytest.raises(Wrong, match=r"300 of 300 keys, and wrong counts: \[7\]"):
        bench_savepoint.run(tmp_path, SMALLEST)


def test_random_keys_may_come_twice_in_a_batch() -> None:
    counts = np.zeros(2, np.int64)
    np.add.at(counts, np.array([1, 1]), 1)
    assert counts.tolist() == [0, 2], "what the benchmark counts with"


def test_the_command_prints_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_savepoint, "run", lambda sizes, note: {"pause_ratio": 1.05})
    printed = CliRunner().invoke(cli, ["bench", "savepoint", "--json"], catch_exceptions=False)
    assert printed.stdout.startswith("{") and '"pause_ratio"' in printed.stdout
