"""Events that go from instance to instance: the same results on every host, in order, and nothing of two attempts mixed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contract_jobs import Numbering, Reading, Silence, Waking, to_alert
from exchange_jobs import (
    START,
    Breaking,
    Counting,
    Dropping,
    Lengths,
    Remembering,
    Same,
    random_job,
    readings,
    spoiling,
)
from sample import run_job
from streamwork import (
    EventLog,
    Job,
    JobFailed,
    ListSource,
    LogSource,
    SqliteSink,
    Stream,
    all_instances,
    shuffle,
)
from streamwork.components.columns import to_structs
from streamwork.engine import Assignment, Report
from streamwork.engine.extent import Extent
from streamwork.engine.steps.staging import read_staged
from streamwork.epoch.agreement import disagreement, missing
from streamwork.job import Layout
from streamwork.world import RealDisk

MANY = readings(40)


def rows(folder: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


def sink_into(folder: Path) -> Any:
    def sink(stream: Stream, name: str) -> None:
        stream.sink(SqliteSink(folder / "out.db", name.replace("-", "_")), id=f"{name}-sink")

    return sink


def log_of(path: Path, events: Sequence[Reading], partitions: int, max_events: int = 1_000_000) -> LogSource[Reading]:
    with EventLog.create(path, Reading, partitions=partitions, exist_ok=True) as log:
        for event in events:
            log.append([event])
    return LogSource(path, Reading, max_events=max_events)


# ---- the same results ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_give_the_same_on_both_hosts(tmp_path: Path, spark: Any, seed: int) -> None:
    found: dict[str, dict[str, Counter[Any]]] = {}
    for mode in ("local", "microbatch"):
        folder = tmp_path / mode
        folder.mkdir()
        tables: list[str] = []

        def sink(stream: Stream, name: str, folder: Path = folder, tables: list[str] = tables) -> None:
            tables.append(name.replace("-", "_"))
            sink_into(folder)(stream, name)

        first = log_of(folder / "first", MANY[:25], partitions=2, max_events=14)
        second = ListSource(MANY[25:], Reading, max_events=10)
        run_job(random_job(seed, [first, second], sink), folder / "root", mode)
        found[mode] = {table: Counter(rows(folder, table)) for table in tables}
    assert found["local"] == found["microbatch"]
    assert sum(found["local"]["counts"].values()) > 0


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("cut", [2, 100])
def test_event_time_timers_fire_between_the_same_events_behind_an_exchange(tmp_path: Path, mode: str, cut: int) -> None:
    """a speaks at 0 and 5, b keeps time going; a is quiet at 15, comes back, and is quiet again."""
    moments = [("a", 0), ("b", 1), ("a", 5), ("b", 9), ("b", 14), ("b", 16), ("a", 17), ("b", 20), ("b", 28)]
    events = [replaced(second, sensor) for sensor, second in moments]
    for life in (5, 9):  # a restart in between: how far time has come is remembered
        job = Job("silent", checkpoint_every=0)
        stream = job.source(ListSource(events[:life], Reading, max_events=cut), id="in", time="at")
        quiet = stream.apply(Same(), id="same").apply(Silence(), key="sensor", id="silence", parallelism=3)
        sink_into(tmp_path)(quiet, "quiet")
        run_job(job, tmp_path / "root", mode)
    assert rows(tmp_path, "quiet") == [("a", 2), ("a", 1)]


def replaced(second: int, sensor: str) -> Reading:
    reading = readings(second + 1)[-1]
    return Reading(sensor, reading.value, reading.at)


@pytest.mark.slow(mode="microbatch")
def test_processing_time_goes_on_behind_an_exchange(tmp_path: Path, mode: str) -> None:
    job = Job("woken", checkpoint_every=0)
    stream = job.source(ListSource(MANY[:4], Reading, max_events=2), id="in")
    sink_into(tmp_path)(stream.apply(Waking(), key="sensor", id="waking", parallelism=3), "woken")
    run_job(job, tmp_path / "root", mode)
    assert {sensor for sensor, _ in rows(tmp_path, "woken")} == {reading.sensor for reading in MANY[:4]}


def test_two_jobs_beside_each_other_in_one(tmp_path: Path, mode: str) -> None:
    """Chains of different width that nothing connects."""
    job = Job("beside", checkpoint_every=0)
    sink = sink_into(tmp_path)
    sink(job.source(ListSource(MANY[:10]), id="one").map(to_alert), "one")
    job.source(ListSource(MANY), id="two", parallelism=2).sink(SqliteSink(tmp_path / "out.db", "two"), id="two-sink")
    run_job(job, tmp_path / "root", mode)
    assert (len(rows(tmp_path, "one")), len(rows(tmp_path, "two"))) == (10, 40)


# ---- order --------------------------------------------------------------------------------------------------------


def test_the_events_of_a_key_and_partition_come_in_order_through_exchanges(tmp_path: Path, mode: str) -> None:
    """Tens of thousands of events, so that they come in many parcels; and they pass an instance that hands them on."""
    count = 60_000
    events = [Reading(f"s{i % 50}", i, START) for i in range(count)]
    job = Job("ordered", checkpoint_every=0)
    stream = job.source(ListSource(events), id="in")
    dropped = stream.apply(Dropping(), id="dropping", parallelism=2, grouping=all_instances())
    both = stream.union(dropped)  # the stream itself has to be carried past the stage of `dropping`
    counts = both.apply(Counting(), key="sensor", id="counts", parallelism=3)
    sink_into(tmp_path)(counts, "counts")
    run_job(job, tmp_path / "root", mode)
    totals: Counter[str] = Counter()
    wanted: dict[str, list[int]] = {}
    for event in events:
        totals[event.sensor] += event.value
        wanted.setdefault(event.sensor, []).append(totals[event.sensor])
    found: dict[str, list[int]] = {}
    for sensor, _, total in rows(tmp_path, "counts"):
        found.setdefault(sensor, []).append(total)
    assert found == wanted


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("cut", [5, 100])
def test_a_fork_that_meets_again_behind_an_exchange_keeps_the_order_whatever_the_cuts(
    tmp_path: Path, mode: str, cut: int
) -> None:
    job = Job("forked", checkpoint_every=0)
    stream = job.source(ListSource(MANY[:12], Reading, max_events=cut), id="in")
    both = stream.filter(is_large, id="large").union(stream.apply(Same(), id="all"))
    sink_into(tmp_path)(both.apply(Numbering(), id="numbers", parallelism=2, grouping=all_instances()), "numbers")
    run_job(job, tmp_path / "root", mode)
    expected = [r.sensor for r in MANY[:12] for _ in range(2 if is_large(r) else 1)]
    assert rows(tmp_path, "numbers").count((len(expected), expected[-1])) == 2
    by_number = sorted(rows(tmp_path, "numbers"))[::2]
    assert [sensor for _, sensor in by_number] == expected


def is_large(reading: Reading) -> bool:
    return reading.value > 40


def test_lists_in_events_are_not_shared(tmp_path: Path, mode: str) -> None:
    job = Job("lists", checkpoint_every=0)
    stream = job.source(ListSource(MANY[:9], Reading), id="in")
    told = stream.apply(Remembering(), key="sensor", id="remembering", parallelism=2)
    sink_into(tmp_path)(told.apply(Lengths(), id="lengths", parallelism=1), "lengths")
    run_job(job, tmp_path / "root", mode)
    found = Counter(rows(tmp_path, "lengths"))
    counts: Counter[str] = Counter()
    expected: Counter[tuple[str, int]] = Counter()
    for reading in MANY[:9]:
        counts[reading.sensor] += 1
        expected[reading.sensor, counts[reading.sensor]] += 1
    assert found == expected


# ---- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("place", ["upstream", "downstream"])
def test_the_component_that_failed_is_named_and_nobody_else(tmp_path: Path, mode: str, place: str) -> None:
    events = [*readings(30), Reading("s0", -7, START), *readings(5)]
    job = Job("failing", checkpoint_every=0)
    stream = job.source(ListSource(events, Reading, max_events=20), id="in")
    up = stream.apply(Breaking(-7 if place == "upstream" else -8), id="upstream")
    down = up.apply(Breaking(-7), id="downstream", parallelism=3, grouping=shuffle())
    counts = down.apply(Counting(), key="sensor", id="counts", parallelism=2)
    sink_into(tmp_path)(counts, "counts")
    with pytest.raises(JobFailed) as caught:
        run_job(job, tmp_path / "root", mode)
    assert caught.value.code == "SW-OPERATOR-FAILED"
    epoch = "epoch " if mode == "live" else "epoch 2"  # where epochs are cut is a matter of time there
    for words in (f"{place} (instance ", "ValueError: broken at -7", epoch):
        assert words in caught.value.cause
    assert len(rows(tmp_path, "counts")) == (0 if mode == "live" else 20), "the last checkpoint is good"


# ---- attempts -----------------------------------------------------------------------------------------------------


def works(layout: Layout, folder: Path, epoch: int, events: int) -> list[Assignment]:
    return [
        Assignment(
            instance,
            "uid",
            str(folder),
            layout.groups,
            epoch,
            1,
            {"in": {"0": Extent(0, events)}} if chain.is_source else {},
            {},
            chain=number,
        )
        for number, chain in enumerate(layout.chains)
        for instance in range(chain.parallelism)
    ]


def values(folder: Path, reports: Sequence[Report], sink: str) -> list[int]:
    refs = [report.staged for report in reports if report.component == sink and report.staged is not None]
    batches = [batch for ref in refs for batch in read_staged(RealDisk(), folder, ref)]
    return sorted(event.value for batch in batches for event in to_structs(Reading, batch))


@pytest.mark.slow
@pytest.mark.spark
def test_output_that_is_lost_after_some_have_read_it_is_noticed(tmp_path: Path, spark: Any) -> None:
    """Spark computes the lost stage again, and some instances see one attempt, some the other. Only `consumed` tells."""
    from streamwork.hosts.spark_epochs import SparkEpochs

    jvm: Any = spark.sparkContext._jvm
    disk = jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    kept = [str(folder) for folder in disk.localDirs()]
    events = readings(40, sensors=20)
    job = spoiling(ListSource(events), kept, str(tmp_path / "spoiled"), SqliteSink(tmp_path / "x.db", "t"))
    layout = Layout.of(job.graph(), 256)
    host = SparkEpochs(spark)
    try:
        told = []
        for epoch in (1, 2):
            host.submit(layout, works(layout, tmp_path, epoch, len(events)))
            told.append(host.collect(epoch, lambda: False))
    finally:
        host.close()
    mixed, clean = told
    assert (tmp_path / "spoiled").exists()
    assert missing(layout.graph, mixed) == "", "every instance has reported, and exactly once"
    assert len({report.consumed for report in mixed if report.component == "spoiling"}) == 2
    assert "consumed attempts" in disagreement(layout, mixed)
    assert disagreement(layout, clean) == ""
    assert values(tmp_path, clean, "raw") == values(tmp_path, clean, "out")
    # The negative control: nothing else would tell, and the two outputs of the checkpoint contradict each other.
    assert values(tmp_path, mixed, "raw") != values(tmp_path, mixed, "out")
    assert len(values(tmp_path, mixed, "raw")) == len(values(tmp_path, mixed, "out")) == len(events)


@pytest.mark.slow
@pytest.mark.spark
def test_an_epoch_is_one_action_and_computes_no_chain_twice(tmp_path: Path, spark: Any) -> None:
    """A diamond with two sinks, one end of which passes a stage."""
    from streamwork.hosts.spark_epochs import SparkEpochs

    job = Job("diamond")
    stream = job.source(ListSource(MANY), id="in")
    turned = stream.apply(Same(), id="turned", grouping=shuffle(), parallelism=2)
    turned.sink(SqliteSink(tmp_path / "x.db", "t"), id="first")
    both = stream.union(turned).apply(Counting(), key="sensor", id="counts", parallelism=3)
    both.sink(SqliteSink(tmp_path / "x.db", "u"), id="second")
    layout = Layout.of(job.graph(), 256)
    host, context = SparkEpochs(spark), spark.sparkContext
    context.setJobGroup("diamond", "")
    try:
        host.submit(layout, works(layout, tmp_path, 1, len(MANY)))
        reports = host.collect(1, lambda: False)
    finally:
        host.close()
    tracker = context.statusTracker()
    (only,) = tracker.getJobIdsForGroup("diamond")
    stages = [tracker.getStageInfo(stage) for stage in tracker.getJobInfo(only).stageIds]
    assert sorted(stage.numTasks for stage in stages) == [1, 2, 3] and len(layout.stages) == 3
    assert missing(layout.graph, reports) == disagreement(layout, reports) == ""
    assert sum(report.counters["processed"] for report in reports if report.component == "counts") == 2 * len(MANY)
