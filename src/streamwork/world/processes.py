"""Processes, as something that is passed in: who am I, and is that one certainly gone?"""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path
from typing import Protocol

import msgspec
import psutil


class ProcessId(msgspec.Struct, frozen=True):
    """One process among all that ever were, anywhere.

    `host` tells apart what a process number means: the machine's name and, after a slash, which run of which kernel and which
    pid namespace. Two containers of one name, two machines of one name, and a machine before and after a reboot are different
    hosts. `started` tells apart two processes that got the same number one after the other; it is only ever compared.
    """

    host: str
    pid: int
    started: float

    @property
    def machine(self) -> str:
        """The machine's name, for people."""
        return self.host.partition("/")[0]

    def __str__(self) -> str:
        return f"process {self.pid} on {self.machine}"


class Processes(Protocol):
    def me(self) -> ProcessId: ...

    def gone(self, process: ProcessId) -> bool:
        """True only if it is certain: same host, and no living process of that number and start. Another host: False."""


class RealProcesses:
    """The machine's own processes."""

    def __init__(self) -> None:
        self._host = _host()

    def me(self) -> ProcessId:
        pid = os.getpid()  # asked for each time: a fork changes it
        return ProcessId(self._host, pid, _started(pid) or 0.0)

    def gone(self, process: ProcessId) -> bool:
        if process.host != self._host:
            return False
        if not psutil.pid_exists(process.pid):
            return True
        started = _started(process.pid)
        if started is None:  # it is there, but does not show itself: hidden by the system, or ending just now
            return not psutil.pid_exists(process.pid)
        return started != process.started or _is_zombie(process.pid)


def _host() -> str:
    name = socket.gethostname().replace("/", "-") or "unnamed"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{name}/{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except (
        OSError
    ):  # no Linux. If there is no hardware address either, the number is random: then nobody is ever waited for less
        return f"{name}/{uuid.getnode():012x}"


def _started(pid: int) -> float | None:
    """When a process began. On Linux in seconds since the boot, which setting the machine's clock does not change."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        if stat.exists():
            fields = (
                stat.read_bytes().rpartition(b")")[2].split()
            )  # what comes before is its name: it may hold anything
            return int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return psutil.Process(pid).create_time()
    except (OSError, psutil.Error, IndexError, ValueError):
        return None


def _is_zombie(pid: int) -> bool:
    """Ended, but nobody has asked for its exit code yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
