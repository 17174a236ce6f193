"""The Yahoo streaming benchmark counts what it should, also after kill -9, and reports no speed of wrong counts."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pytest

from streamwork.bench.contest import Wrong
from streamwork.bench.epochs import Epochs
from streamwork.bench.ysb import jobfile_path, throughput
from streamwork.bench.ysb.events import ADS_PER_CAMPAIGN, BLOCK, Ad, Stream
from streamwork.bench.ysb.oracle import WINDOW, Oracle, check
from streamwork.bench.ysb.running import Progress, RunningJob
from streamwork.bench.ysb.throughput import JOB, SOURCE, Sizes, expected, figures_of, fill, read_counts
from streamwork.components.columns import conforming
from streamwork.hosts.local import LocalHost
from streamwork.job.jobfile import load_job
from streamwork.world import RealDisk
from waiting import wait_for

SMALL = Sizes(events=6_000, warm=1_000, repeats=1, per_checkpoint=2_000, stream=Stream(campaigns=7, step=20_000))


def params(sizes: Sizes, folder: Path, variant: str, format: str = "columns") -> dict[str, str]:  # noqa: A002
    given = {
        "variant": variant,
        "json": "true" if format == "json" else "false",
        "events": sizes.events,
        "per-checkpoint": sizes.per_checkpoint,
        "log": folder / "log",
    }
    given |= {name: getattr(sizes.stream, name) for name in ("partitions", "campaigns", "step")}
    return {name: str(value) for name, value in {**given, "output": folder / "counts.db"}.items()}


def test_events_do_not_depend_on_how_they_are_cut() -> None:
    stream = Stream()
    whole = pa.Table.from_batches([batch for _, batch in stream.batches(1, 0, 2 * BLOCK + 10)])
    parts = [
        batch for cut in ((0, 7), (7, BLOCK + 3), (BLOCK + 3, 2 * BLOCK + 10)) for _, batch in stream.batches(1, *cut)
    ]
    assert pa.Table.from_batches(parts).equals(whole)
    other = pa.Table.from_batches([batch for _, batch in stream.batches(0, 0, 2 * BLOCK + 10)])
    assert not other["ad"].equals(whole["ad"])
    for batch in parts:
        assert conforming(Ad, batch, "events").batch.num_rows == batch.num_rows


def test_events_as_json_are_those_as_columns() -> None:
    rows = Stream().rows(0, 5, 100)
    found = [msgspec.json.decode(line) for line in rows.as_json(5)]
    assert [len(one) for one in found] == [7] * 100
    batch = rows.as_batch(5)
    assert [int(one["ad_id"]) for one in found] == batch["ad"].to_pylist()
    assert [one["event_type"] for one in found] == batch["kind"].to_pylist()
    assert [one["ad_type"] for one in found] == batch["ad_type"].to_pylist()
    assert [int(one["event_time"]) for one in found] == (rows.times // 1000).tolist()


def test_the_oracle_counts_what_sql_does() -> None:
    stream, oracle = SMALL.stream, Oracle(SMALL.stream)
    oracle.read_up_to({0: 1_000, 1: 2_000})
    oracle.read_up_to({0: 3_000, 1: 2_500})
    events = pa.Table.from_batches(
        [batch for part, end in ((0, 3_000), (1, 2_500)) for _, batch in stream.batches(part, 0, end)]
    )
    rows = duckdb.sql(
        f'SELECT ad // {ADS_PER_CAMPAIGN} AS campaign, epoch_us("at") // {WINDOW} * {WINDOW} AS start, count(*) FROM events '
        "WHERE kind = 'view' GROUP BY ALL"
    ).fetchall()
    assert len(events) == 5_500
    assert {(campaign, start): views for campaign, start, views in rows} == oracle.counts()
    ends = max(start for _, start in oracle.counts()) + WINDOW
    closed = oracle.counts(closed=True)
    assert closed and closed.keys() < oracle.counts().keys() and all(start + WINDOW < ends for _, start in closed)


def test_wrong_counts_are_found() -> None:
    wanted = expected(SMALL)
    rows = [(campaign, window, views) for (campaign, window), views in wanted.items()]
    check("ours", rows, wanted)
    campaign, window, views = rows[3]
    for wrong, why in (
        (rows[1:], "1 of .* windows are wrong"),
        ([*rows, rows[0]], "more than once"),
        ([*rows[:3], (campaign, window, views + 1), *rows[4:]], f"{views + 1} views, should be {views}"),
    ):
        with pytest.raises(Wrong, match=why):
            check("ours", wrong, wanted)


@pytest.mark.parametrize("format", ["columns", "json"])
@pytest.mark.parametrize("variant", ["inside", "log"])
def test_the_job_counts_what_the_oracle_does(tmp_path: Path, variant: str, format: str) -> None:  # noqa: A002
    if variant == "log":
        fill(tmp_path / "log", SMALL, format)
    job = load_job(str(jobfile_path()), params(SMALL, tmp_path, variant, format)).job
    epochs = Epochs(job, tmp_path / "root", LocalHost(RealDisk()))
    epochs.run_all(SMALL.events)
    epochs.close()
    wanted = expected(SMALL)
    assert len(wanted) > 20
    check(variant, read_counts(tmp_path / "counts.db"), wanted)


def test_speed_counts_from_the_first_checkpoint_after_the_warm_up() -> None:
    seen = [Progress(1, 10, 100.0, 1.0), Progress(2, 30, 101.0, 2.0), Progress(5, 90, 104.0, 5.0)]
    assert figures_of(seen, 20) == {"events_per_s": 20.0, "cpu_s_per_million": 50_000.0, "checkpoint_s": 1.0}
    with pytest.raises(Wrong, match="no checkpoint between"):
        figures_of(seen, 31)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    found = throughput.run("log", tmp_path, throughput.QUICK)
    assert found["mode"] == "local" and found["events_per_s"] == found["modes"]["local"]["events_per_s"] > 0
    assert found["settings"]["format"] == "typed columns" and 40 < found["settings"]["columns_bytes_per_event"] < 100
    assert found["json_events_per_s"] == found["json"]["local"]["events_per_s"] > 0
    assert found["settings"]["json_bytes_per_event"] > 200
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", pytest.param("live", marks=pytest.mark.spark)])
def test_the_driver_is_killed_in_the_middle(tmp_path: Path, mode: str) -> None:
    """kill -9 after some checkpoint: the next run goes on, and all counts are those of a run without failure."""
    seed = random.SystemRandom().randrange(10**6)
    sizes = msgspec.structs.replace(throughput.QUICK, events=2_000_000, per_checkpoint=100_000)
    kill_at, given = random.Random(seed).randrange(1, sizes.events // 2), params(sizes, tmp_path, "inside")
    with RunningJob(tmp_path, JOB, SOURCE, mode, given) as job:
        for _ in job.checkpoints(kill_at):
            pass
        job.kill()
    with RunningJob(tmp_path, JOB, SOURCE, mode, given) as job:
        # A fast run may have been done before the kill; then the second one has nothing to wait for but its start.
        wait_for(lambda: "resumed" in (tmp_path / "job.txt").read_text(), job.process, tmp_path / "job.txt")
        seen = list(job.checkpoints(sizes.events))
        job.stop()
    assert seen[-1].events == sizes.events
    wanted = expected(sizes)
    check(f"seed {seed}", read_counts(tmp_path / "counts.db"), wanted)
    with closing(sqlite3.connect(tmp_path / "counts.db")) as connection, connection:  # the control
        connection.execute("UPDATE counts SET views = views + 1 WHERE campaign = 3")
    with pytest.raises(Wrong):
        check("changed", read_counts(tmp_path / "counts.db"), wanted)
