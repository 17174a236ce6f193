"""Latencies of a live job: text, JSON, metrics and the console show the same numbers, of all tasks together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commands import ask, call
from console.console_world import showing
from latency_world import KNOWN, TIMES, Shown, measured, task, vital
from observe.test_metrics import samples
from streamwork.cli.status_text import latency_lines, short
from streamwork.engine.vitals import TaskVital, read_vitals
from streamwork.observe.latency import BOUNDS, Latency, SinkLatency, read_latency
from streamwork.observe.metrics import exposition
from streamwork.observe.status import read_status
from streamwork.world import RealClock, RealDisk

WITHIN = 0.07


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    with measured(tmp_path, monkeypatch) as found:
        yield found


def test_every_reader_shows_the_same(shown: Shown) -> None:
    command = ("status", "--root", shown.root, shown.job)
    (model,) = [one for one in shown.sinks().values() if one.component == KNOWN]
    assert (model.p50, model.p99, model.p999, model.max) == (
        pytest.approx(0.002, rel=WITHIN),
        pytest.approx(0.016, rel=WITHIN),
        pytest.approx(0.8, rel=WITHIN),
        0.8,
    )
    in_json = {one["component"]: one for one in ask(*command)["latency"]["sinks"]}
    assert in_json[KNOWN] == json.loads(msgspec.json.encode(model)) and in_json["out"]["buckets"][-1] == 70
    _, text, _ = call(*command)
    (line,) = [one for one in text.splitlines() if one.startswith(f"latency to {KNOWN}: ")]
    assert line == (
        f"latency to {KNOWN}: p50 {short(model.p50)}, p99 {short(model.p99)}, p99.9 {short(model.p999)}, max 800 ms "
        "(1,000 events in the last 10 s)"
    )
    assert "\nlatency to out: " in text
    shown.known_again()
    with showing(shown.root) as served:
        answer = served.get(f"/api/jobs/{shown.job}")
        assert {one["component"]: one for one in answer["status"]["latency"]["sinks"]}[KNOWN] == in_json[KNOWN]
    shown.known_again()
    status = read_status(shown.root, shown.job, RealClock())
    metrics = samples(exposition(status).decode())
    name = "streamwork_latency_seconds"
    assert metrics[f"{name}_count", KNOWN] == 2 * sum(TIMES.values())
    assert metrics[f"{name}_sum", KNOWN] == pytest.approx(2 * sum(took * events for took, events in TIMES.items()))
    assert metrics[f"{name}_bucket", "0.0025", KNOWN] == 2 * 980 and metrics[f"{name}_bucket", "1.0", KNOWN] == 2 * 1000
    assert metrics[f"{name}_count", "out"] == 70


def test_latencies_are_those_of_tasks_that_run(shown: Shown) -> None:
    shown.live.end()
    left = read_vitals(RealDisk(), shown.root / shown.job, shown.live.driver.fence, RealClock().now())
    assert any(one.latencies for one in left), "control: their files are still there"
    assert read_status(shown.root, shown.job, RealClock()).latency is None
    _, text, _ = call("status", "--root", shown.root, shown.job)
    assert "latency" not in text


def test_tasks_count_together() -> None:
    tasks = [
        task("0", vital({0.1: 1}), vital({1.0: 2}, "b", staged=True, seconds=3.0), at=5.0),
        task("1", vital({0.4: 3}, seconds=9.0), at=7.0),
        task("2", at=100.0),
    ]
    found = read_latency(tasks)
    assert found is not None and (found.at, found.window_seconds) == (7.0, 10.0)
    known, other = sorted(found.sinks, key=lambda one: one.component != KNOWN)
    assert (known.events, known.max, known.staged) == (4, 0.4, False)
    assert (other.events, other.max, other.staged) == (2, 1.0, True)
    assert known.buckets[BOUNDS.index(0.25)] == 2 and known.buckets[-1] == 8
    assert read_latency([task("2")]) is None


def test_the_lines_of_the_status() -> None:
    def line(**mine: Any) -> list[str]:
        nothing: dict[str, Any] = {"p50": None, "p90": None, "p99": None, "p999": None, "max": None}
        known = {"component": "out", "staged": False, "events": 0, **nothing, "buckets": (), "seconds": 0.0}
        return latency_lines(Latency(1.0, 9.7, (SinkLatency(**{**known, **mine}),)))

    assert latency_lines(None) == []
    assert line() == ["latency to out: no event in the last 10 s"]
    times = {"events": 1, "p50": 0.00012, "p99": 0.0123, "p999": 1.5, "max": 2.0}
    assert line(staged=True, **times) == [
        "latency to out: p50 120 us, p99 12.3 ms, p99.9 1.5 s, max 2 s "
        "(1 event in the last 10 s; visible with its checkpoint)"
    ]


def test_vital_signs_of_an_earlier_version_can_be_read() -> None:
    now = msgspec.to_builtins(task("0", vital({0.1: 1})))
    del now["latencies"]
    assert msgspec.convert(now, TaskVital).latencies == ()
