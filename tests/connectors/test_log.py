"""The embedded log in jobs: as a source, as a sink, in several instances, on every host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crashes import Crash, CrashAt
from sample import Doubling, Payment, Seen, Summing, expected_journal, payments, run_job
from streamwork import EventLog, Job, LogSink, LogSource, Refused
from streamwork.components.keys import GROUPS, Key, instance_of
from streamwork.job import Layout
from streamwork.log import LogReader, Policy


def make_log(path: Path, events: list[Payment], partitions: int = 4, key: str | None = "card", **options: Any) -> None:
    with EventLog.create(path, Payment, key=key, partitions=partitions, exist_ok=True, **options) as log:
        for at in range(0, len(events), 7):
            log.append(events[at : at + 7])


def log_job(folder: Path, parallelism: int = 1, max_events: int = 40, event: type[Payment] = Payment) -> Job:
    job = Job("logged", checkpoint_every=0, parallelism=parallelism)
    source = job.source(LogSource(folder / "in", event, max_events=max_events), id="payments")
    sink: LogSink[Any] = LogSink(folder / "out", key="card", partitions=3)
    source.apply(Summing(), key="card", id="sums").sink(sink, id="out")
    return job


def contents(path: Path, isolation: str = "read-committed") -> list[Seen]:
    with LogReader(path, Seen, isolation=isolation) as log:
        return [one.event for one in log.last(10**6)]


def by_card(rows: list[tuple[str, int, int]]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for card, number, total in rows:
        found.setdefault(card, []).append((number, total))
    return found


def check(folder: Path, events: list[Payment]) -> None:
    """Every event once, and per card in order."""
    got = [(seen.card, seen.number, seen.total) for seen in contents(folder / "out")]
    assert by_card(got) == by_card(expected_journal(events))


@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_from_log_to_log(tmp_path: Path, mode: str, parallelism: int) -> None:
    events = payments(300, cards=23)
    make_log(tmp_path / "in", events[:150])
    run_job(log_job(tmp_path, parallelism), tmp_path / "root", mode)
    make_log(tmp_path / "in", events[150:])
    outcome = run_job(log_job(tmp_path, parallelism), tmp_path / "root", mode)
    assert outcome.events == 150
    check(tmp_path, events)


@pytest.mark.slow(mode="microbatch")
def test_each_instance_keeps_the_state_of_its_own_groups(tmp_path: Path, mode: str) -> None:
    import pyarrow.parquet as pq

    make_log(tmp_path / "in", payments(300, cards=50))
    run_job(log_job(tmp_path, parallelism=2), tmp_path / "root", mode)
    cards: dict[int, set[str]] = {0: set(), 1: set()}
    for instance in cards:
        for path in (tmp_path / "root" / "logged" / "state" / "sums" / str(instance)).iterdir():
            rows = pq.read_table(path).to_pylist()
            assert all(instance_of(row["__group"], 2) == instance for row in rows)
            assert [row["__group"] for row in rows] == Key(("card",)).groups([row["card"] for row in rows])
            cards[instance] |= {row["card"] for row in rows}
    assert len(cards[0]) + len(cards[1]) == 50 and all(cards.values())


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    crashes=st.lists(st.integers(0, 25), max_size=5),
    parallelism=st.sampled_from([1, 2]),
    max_events=st.integers(20, 90),
)
def test_crashes_lose_and_double_nothing(
    tmp_path_factory: pytest.TempPathFactory, crashes: list[int], parallelism: int, max_events: int
) -> None:
    folder, events = tmp_path_factory.mktemp("life"), payments(200, cards=11)
    make_log(folder / "in", events)
    for steps in [*crashes, 10**9]:
        try:
            run_job(log_job(folder, parallelism, max_events), folder / "root", watcher=CrashAt(steps))
        except Crash:
            continue
    check(folder, events)


@pytest.mark.slow
def test_the_parallelism_may_change_between_two_runs(tmp_path: Path) -> None:
    events = payments(150)
    for first, parallelism in ((0, 2), (50, 4), (100, 1)):
        make_log(tmp_path / "in", events[first : first + 50])
        run_job(log_job(tmp_path, parallelism), tmp_path / "root")
    check(tmp_path, events)


def layout(folder: Path, parallelism: int = 1, job: Job | None = None) -> Layout:
    return Layout.of((job or log_job(folder, parallelism)).graph(), GROUPS)


def test_a_log_partitioned_by_the_key_needs_no_exchange(tmp_path: Path) -> None:
    make_log(tmp_path / "in", payments(5))
    found = layout(tmp_path, 2)
    assert [chain.nodes for chain in found.chains] == [("payments", "sums", "out")]
    assert "no exchange between payments and sums" in found.explain()
    assert "partitioned by card into 4 partitions" in found.explain()


def test_other_shapes_need_one_and_say_why(tmp_path: Path) -> None:
    make_log(tmp_path / "in", payments(5))
    odd = layout(tmp_path, 3)
    assert [chain.nodes for chain in odd.chains] == [("payments",), ("sums", "out")]
    assert "parallelism 3 does not divide the 4 partitions" in odd.explain()
    between = Job("between", parallelism=2)
    between.source(LogSource(tmp_path / "in", Payment), id="payments").apply(Doubling()).apply(
        Summing(), key="card", id="sums"
    )
    assert (
        "payments-doubling may change card: it does not declare keeps_key = True"
        in layout(tmp_path, job=between).explain()
    )
    (tmp_path / "other").mkdir()
    make_log(tmp_path / "other" / "in", payments(5), key="amount")
    assert "partitioned by amount in 256 groups" in layout(tmp_path / "other", 2).explain()
    (tmp_path / "none").mkdir()
    make_log(tmp_path / "none" / "in", payments(5), key=None)
    assert "not partitioned by card" in layout(tmp_path / "none", 2).explain()


def test_explain_on_the_command_line(tmp_path: Path) -> None:
    make_log(tmp_path / "in", payments(5))
    lines = [
        "from pathlib import Path",
        "from test_log_job import log_job",
        f"job = log_job(Path({str(tmp_path)!r}), parallelism=2)",
    ]
    (tmp_path / "explained.py").write_text("\n".join(lines))
    (tmp_path / "test_log_job.py").write_text(Path(__file__).read_text())
    program = [str(Path(sys.executable).parent / "streamwork"), "run", "explained.py", "--explain"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin:/bin"}
    plain = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment)
    assert "chain 1 (2 instances): payments -> sums -> out" in plain.stdout
    answer = subprocess.run(
        [*program, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True, env=environment
    )
    assert json.loads(answer.stdout)["chains"][0]["nodes"] == ["payments", "sums", "out"]
    assert not (tmp_path / ".streamwork").exists()


@pytest.mark.usefixtures("prompt_snapshots")
def test_a_job_keeps_the_log_from_removing_what_it_needs(tmp_path: Path) -> None:
    """Tiny segments and a retention of almost nothing: what some kept checkpoint would read stays, what is older goes."""
    policy = Policy(segment_bytes=600, retain_bytes=1)
    for events in ([], payments(100)):  # the first run only registers the job with the log
        make_log(tmp_path / "in", events, partitions=1, policy=policy)
        run_job(log_job(tmp_path, max_events=1), tmp_path / "root")
    make_log(tmp_path / "in", payments(200), partitions=1, policy=policy)
    with LogReader(tmp_path / "in", Payment) as log:
        assert 0 < log.start(0) < 100, "the first snapshots are made after epoch 20"
    assert run_job(log_job(tmp_path), tmp_path / "root").events == 200
    check(tmp_path, payments(100) + payments(200))


def test_a_new_job_begins_at_the_first_event_that_is_there(tmp_path: Path) -> None:
    make_log(tmp_path / "in", payments(100), partitions=1, policy=Policy(segment_bytes=600, retain_bytes=600))
    with LogReader(tmp_path / "in", Payment) as log:
        first = log.start(0)
    assert first > 0
    assert run_job(log_job(tmp_path), tmp_path / "root").events == 100 - first
    check(tmp_path, payments(100)[first:])


def test_what_was_removed_is_refused_and_never_skipped(tmp_path: Path) -> None:
    policy = Policy(segment_bytes=600, retain_bytes=1)
    make_log(tmp_path / "in", payments(40), partitions=1, policy=policy)
    run_job(log_job(tmp_path, max_events=10), tmp_path / "root")
    for path in (tmp_path / "in" / "consumers").iterdir():
        path.unlink()
    make_log(tmp_path / "in", payments(300), partitions=1, policy=policy)
    with pytest.raises(Refused, match="SW-LOG-GONE"):
        run_job(log_job(tmp_path, max_events=10), tmp_path / "root")


def test_read_committed_jobs_do_not_see_what_is_under_way(tmp_path: Path) -> None:
    make_log(tmp_path / "in", payments(5), partitions=2)
    with EventLog(tmp_path / "in", Payment) as log:
        log.register("writer", "sink", 1)
        with log.transaction("writer", "sink", 1) as transaction:
            transaction.append(payments(3))
            job = Job("watching")
            job.source(LogSource(tmp_path / "in", Payment), id="p").apply(Summing(), key="card", id="sums")
            assert run_job(job, tmp_path / "root").events == 5
            dirty = Job("dirty")
            dirty.source(LogSource(tmp_path / "in", Payment, isolation="read-uncommitted"), id="p").apply(
                Summing(), key="card", id="sums"
            )
            assert run_job(dirty, tmp_path / "root").events == 8


def test_a_log_of_other_events_is_refused(tmp_path: Path) -> None:
    EventLog.create(tmp_path / "in", Seen).close()
    with pytest.raises(Refused, match="SW-LOG-SCHEMA"):
        run_job(log_job(tmp_path), tmp_path / "root")
