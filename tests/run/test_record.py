"""What a run records about itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamwork.epoch.phases import Phase
from streamwork.run.record import RunRecorder, read_run
from streamwork.world import RealClock, RealDisk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fences").mkdir()
    return tmp_path


def recorder(folder: Path, mode: str) -> RunRecorder:
    return RunRecorder(RealDisk(), folder, RealClock(), mode, 1.0)


def claim(folder: Path, fence: int) -> int:
    (folder / "fences" / f"{fence}.json").touch()
    return fence


def test_a_run_that_has_lost_the_job_leaves_the_record_of_the_other_one(folder: Path) -> None:
    old, new = recorder(folder, "live"), recorder(folder, "microbatch")
    old.started(claim(folder, 1))
    new.started(claim(folder, 2))
    old.on_phase(Phase.COMMIT, 7)
    old.write()
    old.failed(1, ValueError("fenced off"))
    found = read_run(RealDisk(), folder)
    assert found is not None and (found.fence, found.mode, found.failures) == (2, "microbatch", ())


def test_the_next_driver_of_the_same_run_is_recorded(folder: Path) -> None:
    run = recorder(folder, "live")
    run.started(claim(folder, 1))
    run.failed(1, ValueError("first"))
    run.failed(claim(folder, 2), ValueError("second"))  # in its start, after it has claimed the job
    found = read_run(RealDisk(), folder)
    assert found is not None and [one.error for one in found.failures] == ["first", "second"]
    run.started(claim(folder, 3))
    found = read_run(RealDisk(), folder)
    assert found is not None and (found.fence, [one.fence for one in found.starts]) == (3, [1, 3])
