"""The benchmark of the log runs, checks what it measured, and reports every number."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamwork.bench import log as bench_log


@pytest.mark.slow
def test_a_small_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"BATCHES": 3, "REPEATS": 1, "TAIL_REPEATS": 1, "TAIL_EVENTS": 20}.items():
        monkeypatch.setattr(bench_log, name, value)
    numbers = bench_log.run(tmp_path)
    for name in ("append_events_per_s", "read_events_per_s", "tail_p50_ms", "tail_p99_ms"):
        assert numbers[name] > 0
    assert numbers["settings"]["fsync"] == "interval"
    assert not list(tmp_path.iterdir())
