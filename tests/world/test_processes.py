"""Who is gone for certain, and who only might be."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from streamwork.world import ProcessId, RealProcesses

TELL = "import msgspec; from streamwork.world import RealProcesses as P; print(msgspec.json.encode(P().me()).decode(), flush=True)"


def read(line: bytes) -> ProcessId:
    """A process as it describes itself."""
    return msgspec.json.decode(line, type=ProcessId)


def test_i_am_here_and_always_the_same() -> None:
    processes = RealProcesses()
    me = processes.me()
    assert me == RealProcesses().me()
    assert me.pid == os.getpid()
    assert not processes.gone(me)


def test_a_process_that_has_ended_is_gone_though_it_was_on_this_host() -> None:
    ended = read(subprocess.run([sys.executable, "-c", TELL], capture_output=True, check=True).stdout)
    assert ended.host == RealProcesses().me().host, "another process here is on the same host"
    assert RealProcesses().gone(ended)


def test_killed_is_gone_before_anybody_asks_for_its_exit_code() -> None:
    processes = RealProcesses()
    sleeping = [sys.executable, "-c", TELL + "; import time; time.sleep(60)"]
    with subprocess.Popen(sleeping, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        it = read(child.stdout.readline())
        assert it.pid == child.pid
        assert not processes.gone(it)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
        assert processes.gone(it)


def test_a_number_that_was_given_to_another_process_does_not_deceive() -> None:
    me = RealProcesses().me()
    assert RealProcesses().gone(ProcessId(me.host, me.pid, me.started - 5))


@pytest.mark.parametrize("host", ["elsewhere", "", "{}-2"])
def test_of_other_hosts_nothing_is_certain(host: str) -> None:
    me = RealProcesses().me()
    assert not RealProcesses().gone(ProcessId(host.format(me.host), 2**22 + 1, 0.0))


def test_a_host_is_more_than_its_name() -> None:
    """After a reboot, and in another container of the same name, process numbers mean something else."""
    me = RealProcesses().me()
    assert me.machine and me.host != me.machine
    assert str(me) == f"process {me.pid} on {me.machine}"
