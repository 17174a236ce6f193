"""The processes of a job are found by their place below the driver and by their command lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from streamwork.observe.processes import JobProcesses
from waiting import wait_for

NEST = """
import ast, subprocess, sys, time

for words, below in ast.literal_eval(sys.argv[1]):
    subprocess.Popen([sys.executable, __file__, repr(below), *words])
print("started", flush=True)
time.sleep(60)
"""
DAEMON = ["-m", "streamwork_daemon"]
ISOLATED = [(["-m", "streamwork.engine.isolated_child", "8", name], []) for name in ("average-ticket[0]", "count[1]")]
TREE = [(["java"], [(DAEMON, [(DAEMON, ISOLATED), (DAEMON, [])])])]


def test_each_kind_is_found(tmp_path: Path) -> None:
    (tmp_path / "nest.py").write_text(NEST)
    driver = subprocess.Popen([sys.executable, tmp_path / "nest.py", repr(TREE)], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    for _ in range(7):
        driver.stdout.readline()
    found = JobProcesses.of(driver.pid)
    try:
        assert found.driver is not None and found.driver.pid == driver.pid
        assert len(found.below) == 6 and len(found.tasks) == 2
        assert [one.component for one in found.isolated] == ["average-ticket", "count"]
        killed = found.isolated[0].process
        killed.kill()
        wait_for(lambda: not killed.is_running() or killed.status() == psutil.STATUS_ZOMBIE)
        assert [one.component for one in JobProcesses.of(driver.pid).isolated] == ["count"], "a zombie does not live"
    finally:
        for process in found.below:
            process.kill()
        driver.kill()
        driver.wait()
        driver.stdout.close()
    assert JobProcesses.of(driver.pid) == JobProcesses()


def test_a_process_without_children_is_a_driver() -> None:
    assert JobProcesses.of(os.getpid()).driver is not None
