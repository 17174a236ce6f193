"""A worker that has read a state ahead does not read its files again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts.test_host_contract import EVENTS, Work, never
from streamwork.engine import Worker
from streamwork.hosts.local import LocalHost
from streamwork.state import StateFiles
from streamwork.world import RealDisk


@pytest.mark.parametrize("ahead", [True, False])
def test_a_state_that_was_read_ahead_is_in_the_cache(tmp_path: Path, ahead: bool) -> None:
    """Without reading ahead, the same check finds the rows unread."""
    work, host = Work(tmp_path, EVENTS), LocalHost(RealDisk())
    host.open(work.layout.graph)
    host.submit(work.layout, work.assigned(1, 0, 12))
    mine = [one for one in work.assigned(2, 12, 12, host.collect(1, never)) if "sums" in one.states]
    host.close()
    worker = Worker(RealDisk())
    unread = [worker.unread(one) for one in mine]
    assert len(mine) == 2 and all(unread)
    if ahead:
        for one in mine:
            worker.read_ahead(work.layout, one)
    assert [worker.unread(one) for one in mine] == ([0, 0] if ahead else unread)


def test_reading_ahead_again_reads_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, host, worker = Work(tmp_path, EVENTS), LocalHost(RealDisk()), Worker(RealDisk())
    host.open(work.layout.graph)
    read: list[int] = []
    catch_up = StateFiles.catch_up
    monkeypatch.setattr(
        StateFiles,
        "catch_up",
        lambda self, rows, files, state: (read.append(len(files)), catch_up(self, rows, files, state))[1],
    )
    for epoch, (start, end) in enumerate(((0, 12), (12, 30)), start=1):
        host.submit(work.layout, work.assigned(epoch, start, end))
        for one in work.assigned(epoch + 1, end, end, host.collect(epoch, never)):
            worker.read_ahead(work.layout, one)
    host.close()
    assert read == [1, 1], "one new delta for each of two instances"
