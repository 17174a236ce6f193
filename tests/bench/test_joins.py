"""The benchmark of joins runs, and reports no speed of wrong results. Without Bytewax, for speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamwork import EventLog
from streamwork.bench import joins as bench
from streamwork.bench.contest import Wrong
from streamwork.bench.epochs import Epochs
from streamwork.bench.joins import JoinContest
from streamwork.bench.joins_job import Click, Purchase, build
from streamwork.bench.timed_contest import Sizes
from streamwork.bench.timed_events import KEY, PARALLELISM
from streamwork.hosts.local import LocalHost
from streamwork.world import RealDisk


@pytest.mark.parametrize("key", [KEY, None], ids=["fused", "shuffled"])
def test_the_job_computes_what_the_oracle_does(tmp_path: Path, key: str | None) -> None:
    contest = JoinContest(tmp_path, None, Sizes(rows=400, keys=50), lambda line: None)
    logs = {
        name: EventLog.create(tmp_path / name, event, key=key, partitions=PARALLELISM)
        for name, event in (("clicks", Click), ("purchases", Purchase))
    }
    job, sink = build("local", tmp_path / "clicks", tmp_path / "purchases", tmp_path / "ledger.json")
    epochs = Epochs(job, tmp_path / "root", LocalHost(RealDisk()))
    for _ in range(3):
        for name, batch in contest.next_epoch().items():
            logs[name].append(batch)
            logs[name].sync()
        epochs.run(400)
    epochs.close()
    for log in logs.values():
        log.close()
    found = pa.Table.from_batches(sink.batches)
    assert found.num_rows > 100
    contest.check_all("fused", found)
    with pytest.raises(Wrong, match=r"fused: there are \d+ pairs, should be"):  # the control: a missing pair
        contest.check_all("fused", found.slice(1))
    twice = pa.concat_tables([found.slice(1), found.slice(1, 1)])
    with pytest.raises(Wrong, match=r"fused: \d+ pairs are wrong; one is"):
        contest.check_all("fused", twice)


@pytest.mark.slow
@pytest.mark.spark
def test_a_small_run(tmp_path: Path, spark: Any) -> None:
    numbers = bench.run(tmp_path, Sizes(rows=500, keys=100, warm=0, repeats=2, peers=("spark",)))
    found = numbers["time_bounded"]
    assert found["ratio_vs_spark"] == min(found[name]["ratio_vs_spark"] for name in ("fused", "shuffled"))
    for name in ("fused", "shuffled", "spark"):
        assert found[name]["events_per_s"] > 0 and found[name]["cpu_s_per_million"] > 0
    assert not list(tmp_path.iterdir())
