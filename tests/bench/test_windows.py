"""The benchmark of windows runs, and reports no speed of wrong results. Without peers, for speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamwork import EventLog
from streamwork.bench import windows as bench
from streamwork.bench.contest import Wrong
from streamwork.bench.epochs import Epochs, KeepingSink
from streamwork.bench.timed_events import KEY, PARALLELISM
from streamwork.bench.window_oracle import WindowResults
from streamwork.bench.windows import KINDS, Kind, WindowContest, WindowSizes, last_of_each
from streamwork.bench.windows_job import View, build
from streamwork.hosts.local import LocalHost
from streamwork.job import Layout
from streamwork.world import RealDisk

SMALL = WindowSizes(rows=400, keys=7, warm=0, repeats=2, peers=())


def locally(folder: Path, kind: Kind, key: str | None) -> tuple[WindowContest, KeepingSink]:
    """The job of the benchmark on the local host, with closing epochs."""
    contest = WindowContest(folder, None, SMALL, lambda line: None, kind)
    log = EventLog.create(folder / "log", View, key=key, partitions=PARALLELISM)
    job, sink = build("local", kind.window, folder / "log", folder / "ledger.json")
    epochs = Epochs(job, folder / "root", LocalHost(RealDisk()))
    for epoch in [contest.next_epoch(), contest.next_epoch(), *contest.closing_epochs()]:
        log.append(epoch["views"])
        log.sync()
        epochs.run(epoch["views"].num_rows)
    epochs.close()
    log.close()
    return contest, sink


@pytest.mark.parametrize("key", [KEY, None], ids=["fused", "shuffled"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_jobs_compute_what_the_oracle_does(tmp_path: Path, kind: Kind, key: str | None) -> None:
    contest, sink = locally(tmp_path, kind, key)
    contest.check_all("fused", pa.Table.from_batches(sink.batches))
    with pytest.raises(Wrong, match=r"fused: there are \d+ windows, should be"):  # the control: a missing row
        contest.check_all("fused", pa.Table.from_batches(sink.batches[1:]))


def test_a_wrong_sum_is_found(tmp_path: Path) -> None:
    contest, sink = locally(tmp_path, KINDS[0], KEY)
    found = pa.Table.from_batches(sink.batches)
    spent = found["spent"].to_numpy().copy()
    spent[-5] += 0.25
    with pytest.raises(Wrong, match=r"fused: 1 windows are wrong; one is \["):
        contest.check_all("fused", found.set_column(found.schema.names.index("spent"), "spent", pa.array(spent)))


def test_fused_is_one_chain(tmp_path: Path) -> None:
    for key, chains in ((KEY, 1), (None, 2)):
        log = tmp_path / f"log-{key}"
        EventLog.create(log, View, key=key, partitions=PARALLELISM).close()
        job, _ = build("one", KINDS[0].window, log, tmp_path / "ledger")
        assert len(Layout.of(job.graph(), job.settings.groups).chains) == chains


def test_the_last_result_of_a_window_counts() -> None:
    columns = ([1, 0, 1], [5, 5, 5], [9, 9, 9], [1, 2, 3], [4, 5, 6])
    found = last_of_each(WindowResults(*(np.array(column) for column in columns)))
    assert [column.tolist() for column in found] == [[0, 1], [5, 5], [9, 9], [2, 3], [5, 6]]


@pytest.mark.slow
@pytest.mark.spark
def test_a_small_run(tmp_path: Path, spark: Any) -> None:
    numbers = bench.run(tmp_path, WindowSizes(rows=500, keys=5, warm=0, repeats=2, peers=("spark",)))
    for kind in ("fixed", "sliding", "session"):
        found = numbers[kind]
        assert found["ratio_vs_spark"] == min(found[name]["ratio_vs_spark"] for name in ("fused", "shuffled"))
        for name in ("fused", "shuffled", "spark"):
            assert found[name]["events_per_s"] > 0 and found[name]["cpu_s_per_million"] > 0
            assert len(found[name]["spread"]["events_per_s"]["repeats"]) == 2
        assert found["ratio_vs_bytewax"] is None
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.spark
def test_no_speed_for_wrong_results_of_spark(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: Spark gets windows of another size."""
    monkeypatch.setattr(bench.SparkFixed, "window", "window(at, '11 seconds')")
    sizes = WindowSizes(rows=500, keys=5, warm=0, repeats=1, peers=("spark",), kinds=("fixed",))
    with pytest.raises(Wrong, match=r"spark: \(rows, checksum\) are"):
        bench.run(tmp_path, sizes)
