"""The Spark master of a job: this machine, or a cluster."""

from __future__ import annotations

import os
import re
import socket
from urllib.parse import urlsplit

from streamwork.errors import JobFailed, WrongUse

DEFAULT_MASTER = "local[*]"
TRIES = 4
"""Attempts at a task before its job fails; the same as Spark's default on a cluster."""

REACH_SECONDS = 5.0
"""Timeout of a connection to a master."""

_LOCAL = re.compile(r"local|local\[(?:\*|\d+)(?:,\s*\d+)?\]")


def check_master(master: str) -> str:
    """The master for Spark, or an error that says which ones there are.

    Spark's local mode tries a task only once, so a Python worker that dies would cost a restart of the driver.
    """
    if _LOCAL.fullmatch(master):
        cores = master.removeprefix("local").strip("[]") or "1"
        return f"local[{cores}]" if "," in cores else f"local[{cores},{TRIES}]"
    if is_remote(master) and (master.startswith("local-cluster") or _ports(master)):
        return master
    raise WrongUse(
        "SW-SPARK-MASTER",
        f"master {master!r} is neither this machine nor a standalone cluster",
        'use "local[N]" or "local[*]" for this machine, or "spark://HOST:PORT" for a cluster: the master\'s log says which',
    )


def is_remote(master: str) -> bool:
    """True if tasks run in other processes, with files and modules of their own, perhaps on other machines."""
    return master.startswith(("spark://", "local-cluster["))


def local_cores(master: str) -> int | None:
    """How many tasks run at the same time on a local master; None for a cluster."""
    if is_remote(master) or not _LOCAL.fullmatch(master):
        return None
    cores = master.removeprefix("local").strip("[]").partition(",")[0] or "1"
    return len(os.sched_getaffinity(0)) if cores == "*" else int(cores)


def with_slots(master: str, tasks: int) -> str:
    """The default master with slots for so many tasks that run all the time, and two for other jobs."""
    return f"local[{tasks + 2}]" if master == DEFAULT_MASTER else master


def reach(master: str, seconds: float = REACH_SECONDS) -> None:
    """Raise unless one of the masters of a cluster accepts connections. Spark itself would try for a minute."""
    if not master.startswith("spark://"):
        return
    failures = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=seconds):
                return
        except (OSError, OverflowError) as error:  # a port above 65535
            failures.append(f"{place} ({error})")
    raise JobFailed(
        "SW-SPARK-UNREACHABLE",
        f"no Spark master answers at {', '.join(failures)}",
        "start the master, or correct --master: its log says under which address it answers. "
        "Without --master the job runs on this machine",
        about_setup=True,
    )


def address_towards(master: str) -> str:
    """The address of this machine under which executors find the driver: the one from which the master is reached."""
    if not master.startswith("spark://"):
        return "127.0.0.1"
    place = urlsplit(master.split(",")[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # connecting a datagram socket sends nothing
            probe.connect((place.hostname, place.port))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise WrongUse(
            "SW-SPARK-MASTER",
            f"there is no way to {master}: {error}",
            "correct the host, or set SPARK_LOCAL_IP to the address under which the cluster reaches this machine",
        ) from error


def _ports(master: str) -> bool:
    """spark://HOST:PORT, or several masters of which one leads: spark://HOST:PORT,HOST:PORT."""
    return all(re.fullmatch(r"[^:/,\s]+:\d+", place) for place in master.removeprefix("spark://").split(","))
