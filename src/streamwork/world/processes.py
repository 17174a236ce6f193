"""The identity of processes, and whether a process has certainly ended; passed in."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path
from typing import Protocol

import msgspec
import psutil


class ProcessId(msgspec.Struct, frozen=True):
    """A globally unique identity of a process.

    `host` is the scope of the process number: the machine's name and, after a slash, the boot of the kernel and the
    pid namespace. Two containers of one name, two machines of one name, and a machine before and after a reboot are different
    hosts. `started` distinguishes processes that got the same number one after the other; it is only compared for equality.
    """

    host: str
    pid: int
    started: float

    @property
    def machine(self) -> str:
        """The machine's name, for display."""
        return self.host.partition("/")[0]

    def __str__(self) -> str:
        return f"process {self.pid} on {self.machine}"


class Processes(Protocol):
    def me(self) -> ProcessId: ...

    def gone(self, process: ProcessId) -> bool:
        """True if the process has certainly ended: same host, and no live process with its number and start. Else False."""


class RealProcesses:
    """The machine's processes."""

    def __init__(self) -> None:
        self._host = _host()

    def me(self) -> ProcessId:
        pid = os.getpid()  # not cached: a fork changes it
        return ProcessId(self._host, pid, _started(pid) or 0.0)

    def gone(self, process: ProcessId) -> bool:
        if process.host != self._host:
            return False
        if not psutil.pid_exists(process.pid):
            return True
        started = _started(process.pid)
        if started is None:  # it exists, but its start is unreadable: hidden by the system, or ending
            return not psutil.pid_exists(process.pid)
        return started != process.started or _is_zombie(process.pid)


def _host() -> str:
    name = socket.gethostname().replace("/", "-") or "unnamed"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{name}/{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        # Not Linux. Without a hardware address the number is random: then no process is ever taken for dead.
        return f"{name}/{uuid.getnode():012x}"


def _started(pid: int) -> float | None:
    """The start time of a process. On Linux in seconds since the boot, so that setting the clock does not change it."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        if stat.exists():
            # The process name comes first, and may contain any character.
            fields = stat.read_bytes().rpartition(b")")[2].split()
            return int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return psutil.Process(pid).create_time()
    except (OSError, psutil.Error, IndexError, ValueError):
        return None


def _is_zombie(pid: int) -> bool:
    """True if the process has ended, but its parent has not read its exit code."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
