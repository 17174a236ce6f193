"""A job to be killed while its state is asked.

usage: killed_job.py FOLDER EVENTS ANSWERS

An epoch is not planned before there are ANSWERS for each one before it: FOLDER/answers has as many bytes as there are answers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from query.query_jobs import sales, sales_job
from streamwork.epoch import Phase
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run

ANSWERS = "answers"
LONGEST_WAIT = 60.0
PAUSE = 0.01
"""Seconds at each step of an epoch, so that each has its share of the kills, and the disks that tests share have theirs."""


def events(count: int) -> list[Any]:
    return sales([n * n * 31 + n for n in range(count)], shops=60)


class Slowly:
    def __init__(self, answers: Path, each: int) -> None:
        self._answers, self._each = answers, each

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        time.sleep(PAUSE)
        if step is Phase.COMPLETE:
            until = time.monotonic() + LONGEST_WAIT
            while self._answers.stat().st_size < self._each * epoch and time.monotonic() < until:
                time.sleep(PAUSE)

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, outcome: Any) -> None: ...
    def close(self) -> None: ...


if __name__ == "__main__":
    folder, count, each = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    options = RunOptions(mode=Mode.LOCAL, root=folder / "root", until_caught_up=True, retain=100_000, take_over=True)
    run(sales_job(events(count), folder, parallelism=2), options, Slowly(folder / ANSWERS, each))
    print("done", flush=True)
