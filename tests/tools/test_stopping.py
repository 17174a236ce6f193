"""A run is asked to end: by signals and requests, at every moment of its life."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sample import payments, summing_job
from streamwork.epoch import Step
from streamwork.epoch.control import Control, Kind
from streamwork.tools.runner import Mode, Options, run
from streamwork.world import RealClock, RealDisk


class Hurried(RealClock):
    """Between two looks at it an hour passes, so that every epoch exceeds its `checkpoint_timeout`."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return self._looks * 3600.0

    def sleep(self, seconds: float) -> None: ...


class AfterAbandoned:
    """A watcher that calls `ask` after `after` abandoned epochs, and raises after `most`."""

    def __init__(self, ask: Any, after: int = 3, most: int = 50) -> None:
        self.abandoned = 0
        self._ask, self._after, self._most = ask, after, most

    def on_step(self, step: Step, epoch: int, manifest: Any) -> None:
        if step is Step.ABANDON:
            self.abandoned += 1
            if self.abandoned == self._after:
                self._ask()
            assert self.abandoned < self._most, "nobody has looked whether an end was asked for"

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, outcome: Any) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "request"])
def test_a_job_all_of_whose_epochs_take_too_long_can_be_stopped(tmp_path: Path, how: str) -> None:
    def ask() -> None:
        if how == "request":
            Control(RealDisk(), tmp_path / "root" / "summing", RealClock()).ask(Kind.STOP, fence=1)
        else:
            os.kill(os.getpid(), signal.Signals[how])

    job = summing_job(payments(30), tmp_path / "out.db")
    job.settings = msgspec.structs.replace(job.settings, checkpoint_timeout=60.0)
    watcher = AfterAbandoned(ask)
    outcome = run(job, Options(mode=Mode.LOCAL, root=tmp_path / "root", restart=False), watcher, Hurried())
    assert outcome.checkpoint == 0 and outcome.events == 0
    assert watcher.abandoned <= 5, "the epoch under way when the end was asked for was the last one"


def test_abandoned_epochs_do_not_pile_up_on_the_stack(tmp_path: Path) -> None:
    """A thousand in a row are more than Python's stack holds."""
    job = summing_job(payments(30), tmp_path / "out.db")
    job.settings = msgspec.structs.replace(job.settings, checkpoint_timeout=60.0)
    limit = sys.getrecursionlimit()
    watcher = AfterAbandoned(lambda: os.kill(os.getpid(), signal.SIGTERM), after=limit, most=2 * limit)
    run(job, Options(mode=Mode.LOCAL, root=tmp_path / "root", restart=False), watcher, Hurried())
    assert watcher.abandoned >= limit
