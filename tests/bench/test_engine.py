"""The benchmark of the engine runs, compares both sides before it reports, and reports every number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamwork.__main__ import cli
from streamwork.bench import engine as bench_engine


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BATCH": 500, "BATCHES": 3, "CARDS": 50, "REPEATS": 2}.items():
        monkeypatch.setattr(bench_engine, name, value)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    numbers = bench_engine.run(tmp_path)
    for name in ("events_per_s", "loop_events_per_s", "ratio_vs_loop", "cpu_s_per_million"):
        assert numbers[name] > 0
    assert set(numbers["cases"]) == set(bench_engine.CASES)
    for case in numbers["cases"].values():
        assert all(len(spread["repeats"]) == 2 for spread in case.values())
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["state", "output"])
def test_no_speed_for_a_wrong_result(wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def apply(self: Any, event: Any, state: Any, collector: Any) -> None:
        state.count += 1
        state.total += event.amount + (wrong == "state" and event.id == "t000000700")
        total = state.total + (wrong == "output" and event.id == "t000000700")
        collector.emit(bench_engine.Spent(event.id, event.card, state.count, total))

    monkeypatch.setattr(bench_engine.Spend, "apply", apply)
    with pytest.raises(AssertionError, match="differ"):
        bench_engine.run(tmp_path)


@pytest.mark.slow
def test_the_command_prints_one_object_or_lines() -> None:
    printed = CliRunner().invoke(cli, ["bench", "engine", "--json"], catch_exceptions=False)
    assert printed.output.startswith("{") and '"ratio_vs_loop"' in printed.output
    assert "ratio_vs_loop  " in CliRunner().invoke(cli, ["bench", "engine"], catch_exceptions=False).output
