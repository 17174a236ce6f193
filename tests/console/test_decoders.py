"""No thread of the console makes msgspec analyse a class: two that analyse the same one crash the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from letter_jobs import squeamish_job
from sample import run_job

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]
PROGRAM = """
import json, sys, threading
from pathlib import Path
from console.console_world import showing
from streamwork.console import decoders

root, prepared, paths = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
if prepared == "no":
    decoders.prepare = lambda: None
found = set()

def called(frame, event, _):
    by = frame.f_back.f_code.co_filename if frame.f_back else ""  # structs.py only lists fields
    if event == "call" and frame.f_code.co_name == "get_class_annotations" and not by.endswith("msgspec/structs.py"):
        found.add(str(frame.f_locals["obj"]))

with showing(root) as served:
    threading.setprofile(called)  # of threads that start from now on
    for path in paths:
        served.get(path)
    with served.events("/api/jobs/squeamish/events") as events:
        next(events)
print(json.dumps(sorted(one for one in found if "streamwork." in one)))
"""
PATHS = [
    "/api/overview",
    "/api/jobs/squeamish",
    *(
        f"/api/jobs/squeamish/{rest}"
        for rest in ("history", "epochs", "epochs/1", "dead-letters", "savepoints", "log", "explain", "query/state")
    ),
]


def analysed(root: Path, prepared: str) -> list[str]:
    """The classes that are analysed by threads of a console in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, root, prepared, *PATHS],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decoders")
    run_job(squeamish_job(folder), folder / "root")
    return folder / "root"


def test_all_classes_are_analysed_before_there_are_threads(root: Path) -> None:
    assert analysed(root, "yes") == []


def test_control_without_that_threads_analyse_them(root: Path) -> None:
    assert any("Manifest" in one for one in analysed(root, "no"))
