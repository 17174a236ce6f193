"""`streamwork bench backpressure`: what it derives from samples; and a short run of it on Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamwork.bench import backpressure
from streamwork.bench.backpressure import Sample, Samples
from streamwork.bench.backpressure_job import OUTPUT, ROW, Tick, Writing, build
from streamwork.job import Layout


def samples(folder: Path, rows: list[int]) -> Samples:
    """One sample for each second; row n is n milliseconds old."""
    (folder / OUTPUT).write_bytes(b"".join(ROW.pack(n, n / 1000) for n in range(rows[-1])))
    found = Samples(folder, subprocess.Popen([sys.executable, "-c", ""]))
    found._job.wait()
    found.all = [Sample(float(second), count, 100) for second, count in enumerate(rows)]
    return found


def test_rates_and_ages_are_those_of_a_time(tmp_path: Path) -> None:
    found = samples(tmp_path, [0, 10, 20, 60])
    assert found.rate(0, 2) == 10 and found.rate(2, 3) == 40 and found.rate(2, 2) == 0
    assert found.ages(1, 2) == [n / 1000 for n in range(10, 20)]
    assert found.newest_age() == 59 / 1000
    assert found.numbers() == list(range(60))
    with pytest.raises(Exception, match="SW-BENCH-FAILED"):
        (tmp_path / "job.txt").write_text("why")
        found.sample()


def test_the_sink_is_slow_while_the_file_says_so(tmp_path: Path) -> None:
    write = Writing(tmp_path, 0.0)
    write(Tick(1, 0.0))
    assert write._factor == 1
    (tmp_path / "slow").touch()
    write._looked = 0.0
    write(Tick(2, 0.0))
    assert write._factor == 10
    assert len((tmp_path / OUTPUT).read_bytes()) == 2 * ROW.size


@pytest.mark.parametrize("policy", backpressure.SEMANTICS)
def test_all_events_go_through_one_channel_for_each_task(tmp_path: Path, policy: str) -> None:
    job = build(tmp_path, policy, backpressure.SEMANTICS[policy], 0.0)
    layout = Layout.of(job.graph(), 8, isolates=True, bounds=True)
    assert [chain.nodes for chain in layout.chains] == [("ticks",), ("pass", "out")]
    assert layout.policies[1].value == policy


@pytest.mark.slow
@pytest.mark.spark
def test_a_short_run(tmp_path: Path) -> None:
    found = backpressure.run(tmp_path, backpressure.QUICK)
    assert found["lost"] == 0 and found["memory_ratio"] > 0
    for policy in backpressure.SEMANTICS:
        assert found["policies"][policy]["events"] > 0
    assert found["policies"]["sources"]["dropped"] == 0
