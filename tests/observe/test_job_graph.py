"""The figures of a graph: channels between chains, instances, skew, rates and watermarks; how a history is thinned."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from query.query_jobs import sales, sales_job
from sample import run_job
from streamwork.engine.vitals import EdgeVital, InstanceVital
from streamwork.epoch.history.history import COARSE_SECONDS, KEEP_ALL_SAMPLES, History
from streamwork.epoch.history.lag import Lag, Sample
from streamwork.epoch.history.reading import samples
from streamwork.epoch.job_folder import open_store
from streamwork.observe.facts import EventTime
from streamwork.observe.job_graph import job_graph
from streamwork.observe.job_view import read_graph
from streamwork.observe.rates import SourceRate, behind, source_rates, spread, together
from streamwork.observe.status import read_status
from streamwork.world import RealClock

NOW = 1_800_000_000.0


def test_a_graph_shows_channels_instances_and_skew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    run_job(sales_job(sales(range(0, 2_000, 97)), tmp_path, 2), root)
    record = read_graph(open_store(root, "sales"))
    assert record is not None
    chain = ("sales", "watching")
    edges = [
        EdgeVital(
            sender="sales[0]",
            receiver=f"by-shop[{number}]",
            policy="sources",
            events=10 * number,
            bytes=100,
            since=NOW if number else None,
            full_seconds=2.0 * number,
            dropped=number,
        )
        for number in range(2)
    ]
    instances = (
        InstanceVital(
            components=chain, instance=0, epoch=7, turns=1, moved_at=NOW, busy=True, waiting=3, last_event="e"
        ),
        InstanceVital(components=("by-shop",), instance=1, epoch=7, turns=1, moved_at=NOW, busy=False, waiting=0),
    )
    times = (
        EventTime("sales", "0", NOW - 5, False),
        EventTime("sales", "1", NOW - 9, False),
        EventTime("sales", "2", NOW - 99, True),
    )
    status = msgspec.structs.replace(
        read_status(root, "sales", RealClock()), edges=tuple(edges), instances=instances, event_times=times
    )
    rates = {"sales": {0: 100.0}, "watching": {0: 100.0}, "by-shop": {0: 90.0, 1: 10.0}, "a": {-1: 50.0}}
    graph = job_graph(record, status, {"sales": SourceRate(100.0, 120.0, "events")}, rates)
    nodes, flows = {one.id: one for one in graph.nodes}, {(one.sender, one.receiver): one for one in graph.edges}
    full = flows["watching", "by-shop"]  # the channel has the name of the first component of the sender's chain
    assert (full.waiting, full.bytes, full.full, full.full_seconds, full.dropped) == (10, 200, True, 2.0, 1)
    assert [one.receiver for one in full.channels] == ["by-shop[0]", "by-shop[1]"] and full.rate == 100.0
    assert flows["sales", "watching"].channels == () and flows["sales", "watching"].waiting is None
    by_shop = nodes["by-shop"]
    assert by_shop.rate == 100.0 and by_shop.skew == 1.8
    assert [(one.instance, one.share, one.busy, one.epoch) for one in by_shop.instances] == [
        (0, 0.9, None, None),
        (1, 0.1, False, 7),
    ]
    watching = nodes["watching"].instances[0]
    assert (watching.busy, watching.waiting, watching.last_event) == (True, 3, "e")
    assert nodes["a"].rate == 50.0 and nodes["a"].skew is None
    assert {node.watermark for node in graph.nodes} == {NOW - 9}  # an idle partition holds nothing back


def test_the_rates_of_sources_and_what_they_are_behind() -> None:
    mine = [Sample("a", NOW - 20 + at, 100 * at + 500, 90 * at) for at in range(21)]
    rates = source_rates(mine, {"a": "events"}, 1.0, NOW)
    assert rates["a"].incoming == pytest.approx(100) and rates["a"].reading == pytest.approx(90)
    assert source_rates(mine, {"a": "events"}, 1.0, NOW + 3_600) == {}  # samples of an hour ago show no present rate
    both = {**rates, "b": SourceRate(1.0, 2.0, "bytes")}
    whole = together(both)
    assert whole is not None and whole.unit == "" and whole.incoming == pytest.approx(102) and together({}) is None
    lag = behind({"a": Lag("events", 700, {"0": 700}, NOW)}, rates)
    assert lag is not None and (lag.total, lag.unit) == (700, "events") and lag.seconds == pytest.approx(7)
    assert behind({}, rates) is None
    assert spread({0: 1.0}) is None and spread({0: 3.0, 1: 1.0}) == 1.5 and spread({0: 0.0, 1: 0.0}) is None


def test_old_samples_are_thinned_and_new_ones_kept(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    count = int(KEEP_ALL_SAMPLES) + 600
    for at in range(count):
        history.input_ends([], [Sample("a", NOW + at, at, at), Sample("b", NOW + at, at, at)])
    history.close()
    kept = [one.at - NOW for one in samples(tmp_path / "history.sqlite") if one.source == "a"]
    newest = [at for at in kept if at >= count - 1 - KEEP_ALL_SAMPLES]
    older = [at for at in kept if at < count - 1 - KEEP_ALL_SAMPLES]
    assert newest == list(map(float, range(count - 1 - int(KEEP_ALL_SAMPLES), count)))
    assert older[0] == 0.0 and all(at % COARSE_SECONDS == 0 for at in older)
    assert len(older) == -(-(count - 1 - int(KEEP_ALL_SAMPLES)) // COARSE_SECONDS)
    assert kept == [one.at - NOW for one in samples(tmp_path / "history.sqlite") if one.source == "b"]
