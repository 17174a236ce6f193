"""A standby of live mode keeps the processes that a gang will run in."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangs import ThreadLauncher
from hosts.test_live import counting, started
from streamwork.hosts.gang import GangHost
from streamwork.hosts.spark_life import KEEP_WARM_SECONDS
from streamwork.job import Layout
from streamwork.testing.clock import VirtualClock


def test_processes_that_wait_for_a_gang_are_used_now_and_then(tmp_path: Path) -> None:
    launcher, clock = ThreadLauncher(), VirtualClock()
    host = GangHost(launcher, clock)
    clock.sleep(2 * KEEP_WARM_SECONDS)
    host.keep_warm()
    assert launcher.warmed == 0, "none were started"
    host.read_ahead(Layout.of(counting(tmp_path).job.graph(), 8), [])
    for passed, expected in ((KEEP_WARM_SECONDS - 1, 1), (2.0, 2), (KEEP_WARM_SECONDS - 2, 2), (3.0, 3)):
        clock.sleep(passed)
        host.keep_warm()
        assert launcher.warmed == expected


def test_a_gang_that_runs_uses_its_processes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamwork.hosts.gang.KEEP_WARM_SECONDS", 0.0)
    live = counting(tmp_path)
    with started(live):
        live.host.read_ahead(Layout.of(live.job.graph(), 8), [])
        live.host.keep_warm()
        assert live.launcher.warmed == 2
        live.send(5)
        live.until(lambda: len(live.rows()) == 5, "all rows")
        live.host.keep_warm()
        assert live.launcher.warmed == 2
