"""The benchmark of keyed state runs, compares every count before it reports, and reports every number. Without peers, for speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from streamwork import EventLog
from streamwork.__main__ import cli
from streamwork.bench import keyed_state as bench_keyed_state
from streamwork.bench import peers as bench_peers
from streamwork.bench.keyed_state import GROWING, OURS, QUICK, Sizes, Wrong
from streamwork.bench.keyed_state_job import PARALLELISM, Counting, Usage, Use, build
from streamwork.bench.peers import Unavailable, by_number
from streamwork.job import Layout

ONE = Sizes(keys=(20,), rows=300, warm=0, repeats=2, peers=())


@pytest.mark.slow
@pytest.mark.spark
def test_a_small_run(tmp_path: Path, spark: Any) -> None:
    told: list[str] = []
    sizes = Sizes(keys=(20, 2), rows=300, warm=0, repeats=2, peers=())
    numbers = bench_keyed_state.run(tmp_path, sizes, told.append)
    assert set(numbers["keys"]) == {"20", "2"}
    assert {name: numbers[name] for name in OURS} == {name: numbers["keys"]["20"][name] for name in OURS}
    for at in numbers["keys"].values():
        for name in OURS:
            assert at[name]["events_per_s"] > 0 and at[name]["cpu_s_per_million"] > 0
            assert len(at[name]["spread"]["events_per_s"]["repeats"]) == sizes.repeats
            assert at[name]["ratio_vs_tws"] is at[name]["ratio_vs_bytewax"] is None  # nobody to compare with
        assert at["fused"]["ratio_vs_fused"] == 1
    assert "growth" not in numbers  # the first number of keys is the largest one
    assert len(told) == 2 * 3 * sizes.repeats
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.spark
def test_few_and_many_keys_take_turns(tmp_path: Path, spark: Any) -> None:
    told: list[str] = []
    sizes = Sizes(keys=(2, 30), rows=300, warm=1, repeats=2, peers=())
    growth = bench_keyed_state.run(tmp_path, sizes, told.append)["growth"]
    assert (growth["few"], growth["many"]) == (2, 30)
    for way in GROWING:
        few, many, ratio = (
            growth[way]["spread"][name]["repeats"]
            for name in ("few_events_per_s", "many_events_per_s", "ratio_many_vs_few")
        )
        assert ratio == [pytest.approx(b / a, rel=0.01, abs=0.001) for a, b in zip(few, many, strict=True)]
    turns = [line.split(":")[0] for line in told if line.startswith("growth, ")]
    few, many = "growth, 2 keys", "growth, 30 keys"
    each = len(GROWING)
    assert turns == [*[many] * each, *[few] * each, *[few] * each, *[many] * each, *[many] * each, *[few] * each]


def test_source_operator_and_sink_run_as_one_chain(tmp_path: Path) -> None:
    EventLog.create(tmp_path / "log", Use, key="card", partitions=PARALLELISM).close()
    EventLog.create(tmp_path / "other", Use, partitions=PARALLELISM).close()
    for log, chains in (("log", 1), ("other", 2)):
        job, _ = build("fused", Counting(), tmp_path / log, tmp_path / "ledger")
        assert len(Layout.of(job.graph(), job.settings.groups).chains) == chains


@pytest.mark.slow
@pytest.mark.spark
def test_no_speed_for_a_wrong_count(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: an operator that counts one event twice."""

    class Twice(Counting):
        def apply(self, event: Any, state: Any, collector: Any) -> None:
            state.count += 1 + (event.id == 7)
            state.total += event.amount
            collector.emit(Usage(event.card, state.count, state.total))

    monkeypatch.setattr(bench_keyed_state, "Counting", Twice)
    with pytest.raises(Wrong, match=r"fused: 2 keys are wrong; card-\d+ has"):
        bench_keyed_state.run(tmp_path, ONE)


@pytest.mark.slow
@pytest.mark.spark
def test_no_speed_for_rows_that_are_missing(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Counting):
        def apply(self, event: Any, state: Any, collector: Any) -> None:
            state.count += 1
            state.total += event.amount
            if event.id:
                collector.emit(Usage(event.card, state.count, state.total))

    monkeypatch.setattr(bench_keyed_state, "Counting", Silent)
    with pytest.raises(Wrong, match="fused: of 600 events 598 rows came out"):
        bench_keyed_state.run(tmp_path, ONE)


def test_a_key_that_is_missing_counts_for_nothing() -> None:
    table = pa.table({"card": ["b", "a"], "count": [2, 1], "total": [0.5, 0.25]})
    counts, totals = by_number(table, ["a", "b", "c"])
    assert counts.tolist() == [1, 2, 0] and totals.tolist() == [0.25, 0.5, 0.0]


def test_a_peer_that_cannot_be_had_is_left_out_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(bench_peers.sys, "executable", "/bin/false")
    (tmp_path / "requirements.txt").touch()
    with pytest.raises(Unavailable, match="its environment could not be made: "):
        bench_peers.environment("nobody", tmp_path / "requirements.txt")
    with pytest.raises(Unavailable, match="benchmarks/peers/nobody is missing"):
        bench_peers.peer_folder("nobody")


def test_two_keys_are_in_two_instances() -> None:
    assert len(bench_keyed_state.card_names(2)) == 2 and len(set(bench_keyed_state.card_names(1001))) == 1001


def test_the_command_prints_one_object_and_tells_how_far_it_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(sizes: Sizes, note: Any) -> dict[str, Any]:
        note("10,000 keys: epoch 1 of 5")
        return {"fused": {"events_per_s": sizes.rows}}

    monkeypatch.setattr(bench_keyed_state, "run", run)
    printed = CliRunner().invoke(cli, ["bench", "keyed-state", "--quick", "--json"], catch_exceptions=False)
    assert printed.stdout.startswith("{") and str(QUICK.rows) in printed.stdout
    assert printed.stderr == "10,000 keys: epoch 1 of 5\n"


def test_the_number_of_keys_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_keyed_state, "run", lambda sizes, note: {"keys": list(sizes.keys)})
    chosen = ["bench", "keyed-state", "--quick", "--json", "--keys", "10000", "--keys", "3"]
    assert json.loads(CliRunner().invoke(cli, chosen, catch_exceptions=False).stdout)["keys"] == [10_000, 3]
    assert CliRunner().invoke(cli, ["bench", "keyed-state", "--keys", "0"]).exit_code == 2
