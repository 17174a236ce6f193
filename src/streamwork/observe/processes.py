"""`JobProcesses`: the processes of a job that runs on this machine, found below its driver.

driver
  └─ JVM                       Spark
       └─ daemon               forks Python workers
            ├─ task            a Python worker of Spark
            │    └─ isolated   a component in a process of its own (live mode)
            └─ task
"""

from __future__ import annotations

from typing import NamedTuple

import psutil

DAEMONS = frozenset({"pyspark.daemon", "streamwork_daemon"})
"""Modules of the process that forks workers. It and its workers have the same command line."""
ISOLATED = "streamwork.engine.isolated_child"


class Isolated(NamedTuple):
    component: str
    process: psutil.Process


class JobProcesses(NamedTuple):
    """The processes of one driver that live, each list by process number. They are those of one moment."""

    driver: psutil.Process | None = None
    tasks: tuple[psutil.Process, ...] = ()
    isolated: tuple[Isolated, ...] = ()
    below: tuple[psutil.Process, ...] = ()  # all of them except the driver

    @classmethod
    def of(cls, driver: int) -> JobProcesses:
        """The processes of the driver with this number; none if it is gone."""
        try:
            process = psutil.Process(driver)
            below = process.children(recursive=True)
        except psutil.Error:
            return cls()
        known = {one.pid: one for one in sorted(below, key=lambda one: one.pid) if _lives(one)}
        words = {number: _command(one) for number, one in known.items()}
        parents = {number: _parent(one) for number, one in known.items()}
        forked = {number for number in known if not DAEMONS.isdisjoint(words[number])}
        daemons = {number for number in forked if parents[number] not in forked}
        isolated = tuple(
            Isolated(words[number][-1].partition("[")[0], one)
            for number, one in known.items()
            if ISOLATED in words[number]
        )
        tasks = tuple(one for number, one in known.items() if parents[number] in daemons)
        return cls(process if _lives(process) else None, tasks, isolated, tuple(known.values()))


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
