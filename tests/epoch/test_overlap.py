"""An epoch is computed while the sinks commit the one before it; a crash in between costs only the number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crashes import Crash, CrashAt
from epoch.test_crashes import check
from sample import payments, run_job, summing_job
from streamwork.epoch import Phase
from streamwork.hosts.local import LocalHost
from tiers import quick_every

EVENTS = payments(60)


@pytest.fixture
def overlapping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalHost, "overlaps", True)


class Steps(CrashAt):
    """Remembers what it is told of, and crashes after so many."""

    def __init__(self, steps: int = 10**9) -> None:
        super().__init__(steps)
        self.told: list[tuple[Phase, int]] = []

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        self.told.append((step, epoch))
        super().on_phase(step, epoch, manifest)


@pytest.mark.usefixtures("overlapping")
def test_the_next_epoch_is_planned_when_one_is_prepared(tmp_path: Path) -> None:
    steps = Steps()
    run_job(summing_job(EVENTS, tmp_path / "out.db", 20), tmp_path / "root", watcher=steps)
    assert (
        steps.told.index((Phase.PREPARE, 1)) < steps.told.index((Phase.PLAN, 2)) < steps.told.index((Phase.COMMIT, 1))
    )
    assert steps.told.index((Phase.COMPLETE, 1)) < steps.told.index((Phase.REPORT, 2))
    assert steps.told.count((Phase.PLAN, 2)) == 1
    check(tmp_path / "out.db", EVENTS)


@pytest.mark.usefixtures("overlapping")
@pytest.mark.parametrize("steps", quick_every(3, range(5 + 3 * 8)))
def test_a_crash_after_any_step(tmp_path: Path, steps: int) -> None:
    for watcher in (Steps(steps), Steps(steps), Steps()):
        try:
            run_job(summing_job(EVENTS, tmp_path / "out.db", 20), tmp_path / "root", watcher=watcher)
        except Crash:
            continue
    check(tmp_path / "out.db", EVENTS)
