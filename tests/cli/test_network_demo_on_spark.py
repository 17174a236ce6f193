"""``streamwork demo`` as a user runs it: real jobs on Spark, real kills, and the totals at the end."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from streamwork.cli.network.counts import read_counts
from streamwork.cli.network.system import Places
from streamwork.cli.network.verdict import judge

pytestmark = [pytest.mark.slow, pytest.mark.spark]

COMMAND = [sys.executable, "-m", "streamwork", "demo"]


def left_running(folder: Path) -> list[list[str]]:
    """Processes whose command line or environment names the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and str(folder) in f"{process.cmdline()} {process.environ()}":
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


def test_the_totals_are_right_after_an_analyser_and_a_driver_were_killed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = [*COMMAND, "--seconds", "30", "--rate", "60", "--json", "--keep", kept]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    summary = json.loads(done.stdout)
    assert summary["right"] and not summary["problems"]
    assert [fault["victim"] for fault in summary["faults"]] == ["analyser", "driver of system usage"]
    assert all(fault["recovered_seconds"] > 0 for fault in summary["faults"])
    usage, fraud = summary["usage"], summary["fraud"]
    assert usage["counted"] == usage["logged"] > summary["sent"] == 1800
    assert usage["missing"] == usage["repeated"] == usage["contradictions"] == 0
    assert usage["fraudulent"] <= usage["store_fraudulent"] <= usage["fraudulent"] + usage["decided_later"]
    assert 0 < fraud["caught"] <= fraud["planted"] and sum(summary["answers"].values()) == 1800
    for text in ("starting Spark for", "kill -9 average-ticket", "kill -9 driver of system usage", "each once"):
        assert text in done.stderr
    assert left_running(kept) == []

    # without the ledger a driver that was killed while it committed would write rows again: the verdict must notice
    places = Places(kept)
    assert judge(read_counts(places)).right
    with closing(sqlite3.connect(places.usage)) as db, db:
        db.execute("INSERT INTO usage SELECT * FROM usage LIMIT 1")
    assert any("more than once" in problem for problem in judge(read_counts(places)).problems)


def test_ctrl_c_stops_everything_and_removes_the_files(tmp_path: Path) -> None:
    """During the start. Nothing was sent, so there is nothing to count."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(COMMAND, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert demo.stdout is not None
    with demo.stdout:
        while "for system usage" not in (line := demo.stdout.readline()):
            assert line, "the demo has ended"
        time.sleep(3)  # both JVMs start
        assert len(left_running(tmp_path)) > 1
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.wait(120) == 130, rest
    assert list(tmp_path.glob("streamwork-demo-*")) == [] and left_running(tmp_path) == []
