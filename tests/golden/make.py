"""Makes a golden root of the version that is installed: ``python tests/golden/make.py``. Run it once for every release.

It runs half of the job, creates a savepoint, and keeps what a start needs: the root with the savepoint, and the targets.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import streamwork
from streamwork.epoch.job_folder import open_store
from streamwork.run import savepoints
from streamwork.world import RealClock, processes

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from job import job, write_input  # noqa: E402

HALF = 100
NOT_KEPT = (
    "views.sql",
    "views",
    "vitals",
    "history.sqlite",
    "exchange",
)  # made again by every start, or with paths of this machine


def make(target: Path) -> None:
    if target.exists():
        raise SystemExit(f"{target} is there: what a release has written is never written again")
    processes._host = lambda: "machine/golden"  # nothing of this machine is kept
    savepoints.me = lambda: "someone@machine"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_input(folder / "in.jsonl", 0, HALF)
        job(folder).run(mode="local", root=folder / "root", until_caught_up=True)
        store = open_store(folder / "root", "golden")
        savepoints.create_savepoint(job(folder), store, "half", "a golden savepoint", 60, RealClock())
        for name in NOT_KEPT:
            path = store.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        shutil.copytree(folder, target)


if __name__ == "__main__":
    make(HERE / streamwork.__version__)
