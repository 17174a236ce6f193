"""The catalogue of metrics: what the documentation lists is what a job shows, and histograms hold what was recorded."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from letter_jobs import squeamish_job
from sample import run_job
from streamwork.cli.demo import write_transactions
from streamwork.epoch.history.durations import BOUNDS
from streamwork.epoch.history.history import History
from streamwork.epoch.history.reading import durations
from streamwork.epoch.history.values import Result, Row, Seconds
from streamwork.epoch.in_doubt import InDoubt
from streamwork.observe.metrics import METRICS, Metric, Type, exposition
from streamwork.observe.status import JobStatus, read_status
from streamwork.world import RealClock

REPO = Path(__file__).parents[2]
PROGRAM = str(Path(sys.executable).parent / "streamwork")
PAGE = (REPO / "docs" / "monitoring.md").read_text()


def rows_of(metrics: tuple[Metric, ...]) -> list[str]:
    return [
        f"| `{one.name}` | {one.type.value} | {', '.join(f'`{label}`' for label in one.labels)} | {one.meaning} |"
        for one in metrics
    ]


def listed(page: str) -> list[str]:
    return re.findall(r"^\| `streamwork_.*$", page, re.MULTILINE)


def test_the_documentation_lists_every_metric_as_it_is() -> None:
    assert listed(PAGE) == rows_of(METRICS)


def test_control_a_metric_that_is_not_documented_is_noticed() -> None:
    more = Metric("streamwork_more", Type.GAUGE, "More.", (), lambda status: [])
    assert listed(PAGE) != rows_of((*METRICS, more))
    assert listed(PAGE.replace("`unit`", "`units`")) != rows_of(METRICS)


def test_names_are_unique_and_of_prometheus_form() -> None:
    names = [series for one in METRICS for series in one.series]
    assert len(names) == len(set(names))
    for one in METRICS:
        assert re.fullmatch(r"streamwork_[a-z_]+", one.name)
        assert "duration" not in one.name and "millis" not in one.name, "seconds and bytes, named as units"
    with pytest.raises(ValueError, match="end in _total"):
        Metric("streamwork_things", Type.COUNTER, "Things.", (), lambda status: [])


def job_status(folder: Path) -> JobStatus:
    run_job(squeamish_job(folder), folder / ".streamwork")
    return read_status(folder / ".streamwork", "squeamish", RealClock())


def test_a_job_shows_only_metrics_of_the_catalogue_with_their_labels(tmp_path: Path) -> None:
    found = list(text_string_to_metric_families(exposition(job_status(tmp_path)).decode()))
    known = {one.name.removesuffix("_total"): one for one in METRICS}
    assert {family.name for family in found} == set(known)
    for family in found:
        assert family.type == known[family.name].type.value
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(known[family.name].labels), sample.name


def test_metrics_and_status_agree(tmp_path: Path) -> None:
    status = job_status(tmp_path)
    found = {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "job")): sample.value
        for family in text_string_to_metric_families(exposition(status).decode())
        for sample in family.samples
    }
    assert found["streamwork_running",] == 0 and status.running is False
    assert found["streamwork_driver_starts_total",] == 1
    assert found["streamwork_job_info", "local", "exactly-once"] == 1
    assert found["streamwork_checkpoint_interval_seconds",] == status.checkpoint_every
    assert found["streamwork_state_keys", "squeamish"] == 3
    sizes = {instance: found["streamwork_state_bytes", "squeamish", instance] for instance in ("0",)}
    assert sizes == status.states["squeamish"].bytes and sizes["0"] > 0
    assert found["streamwork_epoch_seconds_count", "compute"] == status.epochs["completed"].epochs == 3
    seconds = status.epochs["completed"].seconds.compute
    assert seconds is not None and math.isclose(found["streamwork_epoch_seconds_sum", "compute"], seconds)
    commits = found["streamwork_sink_commit_seconds_sum", "out"]
    assert 0 < commits <= found["streamwork_epoch_seconds_sum", "commit"]
    assert found["streamwork_verdict", "", "not running"] == 1
    assert found["streamwork_verdict", "", "stopped"] == 0, "what does not hold is 0, so that alerts see it end"


def test_input_in_doubt_is_counted_by_source(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    status = job_status(tmp_path / "job")
    doubts = [InDoubt(4, 1, "payments/0", 10, 17, "events"), InDoubt(4, 1, "payments/1", 0, 3, "events")]
    changed = {name: getattr(status, name) for name in status.__struct_fields__} | {"in_doubt": doubts}
    text = exposition(JobStatus(**changed)).decode()
    assert 'streamwork_in_doubt_total{job="squeamish",source="payments",unit="events"} 10.0' in text
    assert 'streamwork_in_doubt_epochs_total{job="squeamish"} 1.0' in text


def test_the_commands_of_the_guide_work_as_written(tmp_path: Path) -> None:
    (tmp_path / "card_usage.py").write_text((REPO / "examples" / "card_usage.py").read_text())
    write_transactions(tmp_path / "transactions.jsonl", 100, cards=10)
    _, block = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    commands = [[PROGRAM, *shlex.split(line)[1:]] for line in block.splitlines()]
    said = [subprocess.run(one, cwd=tmp_path, capture_output=True, text=True, check=True).stdout for one in commands]
    assert 'streamwork_checkpoint{job="card-usage"} 1.0' in said[1]


# ---- histograms -----------------------------------------------------------------------------------------------------


def row(epoch: int, took: float, outcome: Result = Result.COMPLETED) -> Row:
    return Row(
        epoch=epoch, fence=1, outcome=outcome, started=0.0, seconds=Seconds(commit=took), sinks={"out": took / 2}
    )


def test_a_histogram_holds_every_committed_epoch(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    assert durations(path) == ()
    recorded = History(path)
    for number, took in enumerate((0.0009, 0.001, 0.002, 7.0, 1000.0)):
        recorded.record(row(number, took))
    recorded.record(row(9, 5.0, Result.ABANDONED))
    recorded.close()
    whole, sink = durations(path)
    assert (whole.step, whole.sink, whole.epochs) == ("commit", "", 5)
    by_bound = dict(zip(BOUNDS, whole.buckets, strict=True))
    assert (by_bound[0.001], by_bound[0.0025], by_bound[5.0], by_bound[10.0], by_bound[300.0], by_bound[math.inf]) == (
        2,
        3,
        3,
        4,
        4,
        5,
    )
    assert math.isclose(whole.seconds, 1007.0039)
    assert (sink.step, sink.sink) == ("commit", "out") and math.isclose(sink.seconds, whole.seconds / 2)


def test_bounds_of_an_earlier_version_count_for_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.sqlite"
    recorded = History(path)
    with monkeypatch.context() as earlier:
        earlier.setattr("streamwork.epoch.history.durations.BOUNDS", (0.002, math.inf))
        recorded.record(row(1, 0.0015))
    recorded.close()
    by_bound = dict(zip(BOUNDS, durations(path)[0].buckets, strict=True))
    assert (by_bound[0.001], by_bound[0.0025], by_bound[math.inf]) == (0, 1, 1)
