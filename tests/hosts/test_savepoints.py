"""Savepoints in live mode and in microbatch, of a job that goes on meanwhile, and a start from them in another mode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from savepoint_jobs import ROOT, Place, expected
from streamwork.epoch.savepoints import Savepoint
from streamwork.run.mode import Mode
from streamwork.world import RealDisk
from waiting import PATIENCE, wait_for

PROGRAM = Path(sys.executable).parent / "streamwork"


def use(place: Place) -> None:
    """The job runs meanwhile, and is stopped in the end."""
    place.wait_for_rows(12)
    assert place.save("one")["was_running"]
    place.give(9)
    place.wait_for_rows(21)
    assert place.ask("stop", "usage.py", "--savepoint", "two")["was_running"]


def check(place: Place) -> None:
    assert place.journal() == expected(place.given)
    for name, count in (("one", 12), ("two", 21)):
        savepoint = Savepoint.open(RealDisk(), place.folder / ROOT / "usage" / "savepoints" / name)
        savepoint.check()
        assert savepoint.record.rows == 7
        size = len("".join((place.folder / "payments.jsonl").read_text().splitlines(keepends=True)[:count]))
        assert savepoint.record.positions == {"payments/0": size}
    place.catch_up("--from", "savepoint:one", "--rewind-output")
    assert place.journal() == expected(place.given), "on the local host"
    place.give(4)
    place.catch_up()
    assert place.journal() == expected(place.given)


@pytest.mark.usefixtures("gang_of_threads")
def test_of_a_job_in_live_mode(tmp_path: Path) -> None:
    place = Place(tmp_path, latest="")
    place.give(12)
    with place.running(mode=Mode.LIVE):
        use(place)
    check(place)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("mode", ["microbatch", "live"])
def test_of_a_job_on_spark(tmp_path: Path, mode: str) -> None:
    place = Place(tmp_path, latest="")
    place.give(12)
    run = subprocess.Popen(
        [PROGRAM, "run", "usage.py", "--no-restart", "--mode", mode],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for(lambda: len(place.journal()) >= 12, run)
        use(place)
        assert run.wait(PATIENCE) == 0
    finally:
        run.kill()
        run.communicate()
    check(place)
