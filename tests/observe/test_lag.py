"""Lag: `log info`, `status` and the metrics agree with a count of the input that no completed checkpoint has read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from commands import ask, call
from crashes import Crash
from sample import Payment, Summing, payments, run_job
from streamwork import EventLog, Job, JsonLines, LogSource, SqliteSink
from streamwork.epoch import Phase
from streamwork.epoch.history.lag import InputEnd, lags
from streamwork.observe.metrics import exposition
from streamwork.observe.status import read_status
from streamwork.world import RealClock


class DieAfter:
    """Ends the run once so many checkpoints are completed, as a crash would."""

    def __init__(self, checkpoints: int) -> None:
        self.left = checkpoints

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        if step is Phase.COMPLETE and epoch:
            self.left -= 1
            if self.left == 0:
                raise Crash

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def lag_job(folder: Path, max_events: int) -> Job:
    job = Job("lagging", checkpoint_every=0, retain=3)
    source = job.source(LogSource(folder / "in", Payment, max_events=max_events), id="payments")
    source.apply(Summing(), key="card", id="sums").sink(SqliteSink(folder / "out.db", "out"), id="out")
    return job


def seen(folder: Path) -> tuple[int, int, int]:
    """The lag as `log info`, `status` and the metrics show it."""
    (consumer,) = ask("log", "info", folder / "in")["consumers"]
    assert consumer["job"] == "lagging"
    status = ask("status", "--root", folder / "root", "lagging")["lag"]["payments"]
    assert status["unit"] == "events" and status["total"] == sum(status["partitions"].values())
    text = exposition(read_status(folder / "root", "lagging", RealClock())).decode()
    measured = sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "streamwork_lag"
    )
    return consumer["lag"], status["total"], int(measured)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.integers(1, 60), more=st.integers(0, 40), max_events=st.integers(5, 30), partitions=st.integers(1, 3))
def test_a_job_that_has_caught_up_has_no_lag(
    tmp_path_factory: pytest.TempPathFactory, first: int, more: int, max_events: int, partitions: int
) -> None:
    folder = tmp_path_factory.mktemp("lag")
    events = payments(first + more)
    with EventLog.create(folder / "in", Payment, key="card", partitions=partitions) as log:
        log.append(events[:first])
    run_job(lag_job(folder, max_events), folder / "root")
    assert seen(folder) == (0, 0, 0)
    if more:
        with EventLog(folder / "in", Payment) as log:
            log.append(events[first:])
        # `status` shows the ends that the driver saw; the log itself is asked by `log info`.
        assert seen(folder) == (more, 0, 0)
        run_job(lag_job(folder, max_events), folder / "root")
        assert seen(folder) == (0, 0, 0)


def test_a_job_that_was_killed_shows_what_it_had_not_read(tmp_path: Path) -> None:
    with EventLog.create(tmp_path / "in", Payment) as log:
        log.append(payments(100))
    with pytest.raises(Crash):
        run_job(lag_job(tmp_path, 10), tmp_path / "root", watcher=DieAfter(3))
    assert seen(tmp_path)[1:] == (70, 70)
    _, text, _ = call("status", "--root", tmp_path / "root", "lagging")
    assert "\nlag: payments 70 events; input that arrived after the stop is not counted\n" in text


def test_of_a_text_file_the_lag_is_in_bytes_and_the_beginning_of_a_line_is_none(tmp_path: Path) -> None:
    line = '{"card": "a", "amount": 1}\n'
    file = tmp_path / "in.jsonl"
    file.write_text(line * 10 + line[:7])
    job = Job("lagging", checkpoint_every=0)
    source = job.source(JsonLines(file, Payment, max_events=4), id="payments")
    source.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    with pytest.raises(Crash):
        run_job(job, tmp_path / "root", watcher=DieAfter(1))
    lag = ask("status", "--root", tmp_path / "root", "lagging")["lag"]["payments"]
    assert (lag["unit"], lag["total"]) == ("bytes", len(line) * 6 + 7)
    run_job(job, tmp_path / "root")
    assert ask("status", "--root", tmp_path / "root", "lagging")["lag"]["payments"]["total"] == 0


def test_the_job_is_named_and_its_lag_does_not_count_from_the_oldest_checkpoint(tmp_path: Path) -> None:
    """The checkpoint that retention keeps for a fall back is far behind a job that has caught up."""
    with EventLog.create(tmp_path / "in", Payment) as log:
        log.append(payments(100))
    run_job(lag_job(tmp_path, 10), tmp_path / "root")
    (consumer,) = ask("log", "info", tmp_path / "in")["consumers"]
    assert consumer["offsets"].get("0", 0) < 100 == consumer["read"]["0"]
    _, text, _ = call("log", "info", tmp_path / "in")
    assert "lagging" in text and consumer["uid"] not in text


def test_where_no_checkpoint_has_read_from_a_partition_lag_counts_from_where_reading_begins() -> None:
    ends = [InputEnd("s", "0", 40, 100, "events", 1.0), InputEnd("s", "1", 0, 10, "events", 2.0)]
    found = lags(ends, {"s/1": 7})
    assert (found["s"].total, found["s"].partitions) == (63, {"0": 60, "1": 3})
