"""A test that waits for a process notices that it has ended."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from waiting import PATIENCE, wait_for

DIES = [sys.executable, "-c", "import sys; print('half way'); sys.exit('no such option')"]


def test_a_process_that_has_ended_is_not_waited_for() -> None:
    began = time.monotonic()
    ended = pytest.raises(AssertionError, match=r"ended with exit code 1:\nhalf way\n\nno such option")
    with subprocess.Popen(DIES, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process, ended:
        wait_for(lambda: False, process)
    assert time.monotonic() - began < PATIENCE


def test_its_log_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(DIES, stdout=output, stderr=subprocess.STDOUT)
    with pytest.raises(AssertionError, match="no such option"):
        wait_for(lambda: False, process, log)


def test_what_it_did_last_counts(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with subprocess.Popen([sys.executable, "-c", f"open({str(done)!r}, 'w')"]) as process:
        process.wait()
        asked = iter([False, True])
        wait_for(lambda: next(asked) and done.exists(), process)


def test_what_never_happens_is_not_waited_for_for_ever() -> None:
    never = pytest.raises(AssertionError, match="not true after 0 s")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process, never:
        wait_for(lambda: False, process, seconds=0.01)
