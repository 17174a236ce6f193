"""What every release has written must load: its root goes on, its savepoint starts in another root, its state is read.

`golden/make.py` makes the folder of a release. A folder is never changed: a version that cannot load it has broken its users' jobs.
"""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sample import run_job
from streamwork import Job
from streamwork.epoch.savepoints import Savepoint
from streamwork.epoch.store import Store
from streamwork.run.checking import check
from streamwork.state import rows
from streamwork.world import RealClock, RealDisk

GOLDEN = Path(__file__).parents[1] / "golden"
RELEASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "root").is_dir())
ALL = 160

spec = importlib.util.spec_from_file_location("golden_job", GOLDEN / "job.py")
assert spec is not None
assert spec.loader is not None
golden: Any = importlib.util.module_from_spec(spec)
sys.modules["golden_job"] = golden
spec.loader.exec_module(golden)


def results(folder: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return {
            "totals": db.execute("SELECT * FROM totals ORDER BY card, shop").fetchall(),
            "seen": db.execute("SELECT * FROM seen ORDER BY number").fetchall(),
            "ended": db.execute("SELECT * FROM ended ORDER BY card, window_start").fetchall(),
        }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Of a run of today that never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    golden.write_input(folder / "in.jsonl", 0, ALL)
    run_job(golden.job(folder), folder / "root")
    return results(folder)


@pytest.fixture(params=RELEASES)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a release has written, with more input."""
    shutil.copytree(GOLDEN / request.param, tmp_path / "kept")
    golden.write_input(tmp_path / "kept" / "in.jsonl", 100, ALL)
    return tmp_path / "kept"


def test_there_are_some() -> None:
    assert RELEASES


def test_a_root_goes_on(kept: Path, expected: dict[str, list[Any]]) -> None:
    job: Job = golden.job(kept)
    found = check(job, Store(RealDisk(), kept / "root", "golden"), None, (), RealClock())
    assert found.fits, found.reasons
    assert {one.change.value for one in found.components} == {"same"}
    run_job(job, kept / "root")
    assert results(kept) == expected


def test_a_savepoint_starts_in_another_root(kept: Path, expected: dict[str, list[Any]]) -> None:
    shutil.move(kept / "root" / "golden" / "savepoints" / "half", kept / "half")
    shutil.rmtree(kept / "root")
    assert Savepoint.open(RealDisk(), kept / "half").problems() == []
    run_job(golden.job(kept), kept / "root", from_=str(kept / "half"))
    assert results(kept) == expected


def test_control_a_release_that_is_not_understood_is_found_out(
    kept: Path, expected: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "OWN_FIELDS", (pa.field("__key_group", pa.int32()), *rows.OWN_FIELDS[1:]))
    with pytest.raises(AssertionError, match="SW-STATE-SCHEMA"):
        test_a_root_goes_on(kept, expected)
