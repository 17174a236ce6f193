"""Latency against throughput: what is measured, and what is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_broker.server import KafkaServer
from streamwork.bench.chart import Chart
from streamwork.bench.plot import plot, svg
from streamwork.bench.ysb import rates
from streamwork.bench.ysb.events import BEGIN
from streamwork.errors import JobFailed

SIZES = rates.Sizes(warm_windows=2, windows=2)


def test_latency_counts_from_when_the_last_event_of_a_window_was_due() -> None:
    """Windows of 1 s; the first two warm up. The third ends 1 s after the beginning, the fourth 2 s after it."""
    windows = [BEGIN + number * 1_000_000 for number in range(4)]
    right = {(7, at): 100.0 for at in windows[:2]} | {(7, windows[2]): 501.25, (7, windows[3]): 502.75}
    found = rates.figures_of(right, dict.fromkeys(right, 1), 500.0, SIZES)
    assert found == {"p50_ms": 500.0, "p99_ms": 745.0, "max_ms": 750.0, "results": 2}


def test_rates_beyond_the_first_that_is_too_high_are_not_tried(monkeypatch: Any, tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def measured(system: str, servers: str, rate: int, *rest: Any) -> dict[str, Any]:
        asked.append((system, rate))
        if system == "slow" and rate > 1:
            raise JobFailed("SW-BENCH-FAILED", "windows are missing", "")
        return {"p99_ms": 10.0 * rate, "behind": False}

    monkeypatch.setattr(rates, "measured", measured)
    found = rates.run("s:1", tmp_path, rates.Sizes(rates=(1, 2, 3), systems=("slow", "fast")))
    assert asked == [("slow", 1), ("slow", 2), ("fast", 1), ("fast", 2), ("fast", 3)]
    assert found["systems"]["slow"][1]["behind"] and "missing" in found["systems"]["slow"][1]["why"]
    drawn = plot("ysb-rates", found)
    assert isinstance(drawn, Chart) and drawn.series["slow"] == [(1.0, 10.0)] and len(drawn.series["fast"]) == 3
    assert svg(drawn, "rates").count("<circle") == 4
    assert plot("ysb-rates", {"systems": {"slow": [{"behind": True}]}}) is None


def test_batches_are_what_comes_in_an_interval(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(rates, "measured", lambda *given: {"p99_ms": 1.0, "behind": False})
    found = rates.run("s:1", tmp_path, rates.Sizes(rates=(1_000,), every_ms=(100, 2_000), systems=("live",)))
    drawn = plot("ysb-batches", found)
    assert isinstance(drawn, Chart) and [x for x, _ in drawn.series["live"]] == [100.0, 2_000.0]


@pytest.mark.slow
def test_a_small_run(tmp_path: Path, kafka: KafkaServer) -> None:
    """On the local host the right counts can be read after checkpoints."""
    found = rates.run(kafka.address, tmp_path, rates.QUICK)
    rows = found["systems"]["local"]
    assert rows and rows[0]["results"] == 30 and 0 < rows[0]["p50_ms"] <= rows[0]["p99_ms"]
    assert not list(tmp_path.iterdir())
