"""Verifies, before the first plan, that the executors of a cluster can run this job.

    1  the driver writes a file of a fresh name below the root
    2  on every executor a worker imports what it will need, reads that file, and writes one of its own
    3  the driver reads these

So a machine without the right Python, packages or modules, and one that sees another disk under the name of the root, are reported
by name. Executors that come later are checked by their first task (`hosts.spark_task`).
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from streamwork.errors import JobFailed, Refused, WrongUse

NEEDED = ("pyarrow", "pandas", "msgspec", "streamwork.hosts.spark_task")
FIRST_SECONDS = 60.0
"""Timeout for the first executor of a cluster."""
ROUNDS = 5
STAY_SECONDS = 0.1
"""How long a worker stays busy, so that Spark gives the next task to another one."""

_probed: set[tuple[str, str]] = set()


def probe(spark: Any, root: Path, modules: Iterable[str], check: Callable[[], None] = lambda: None) -> None:
    """Probe every present executor, once for each Spark and root. Raises WrongUse, Refused, or what `check` raises."""
    context = spark.sparkContext
    if (context.applicationId, str(root)) in _probed:
        return
    expected = _wait_for_executors(context, check)
    folder = root / f".probe-{secrets.token_hex(8)}"
    folder.mkdir(parents=True)
    try:
        (folder / "driver").write_text(folder.name)  # 1
        wanted = [*NEEDED, *modules]
        answers: dict[str, dict[str, str]] = {}
        for _ in range(ROUNDS):
            check()
            for answer in _ask(context, folder, wanted):  # 2
                answers[answer["executor"]] = answer
                _judge(answer, root, folder)  # 3
            if len(answers) >= expected:
                break
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
    _probed.add((context.applicationId, str(root)))


def unshared(host: str, root: str, seen: str) -> Refused:
    return Refused(
        "SW-ROOT-UNSHARED",
        f"executor host {host} does not share the root {root} with this machine: {seen}",
        "choose a --root that is the same folder on every machine (NFS or another shared file system), mounted under one path",
    )


def cannot_run(told: str) -> WrongUse:
    return WrongUse(
        "SW-SPARK-WORKERS",
        f"the cluster's workers cannot run this job: {told}",
        "install the same Python at the same path on every machine, with the same packages (compare `pip freeze`); if it is at "
        "another path there, set PYSPARK_PYTHON to it. Streamwork and the job's folder are sent",
    )


def _wait_for_executors(context: Any, check: Callable[[], None]) -> int:
    until = time.monotonic() + FIRST_SECONDS
    while (found := len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1) < 1:  # one of them is the driver
        if time.monotonic() > until:
            raise JobFailed(
                "SW-SPARK-START",
                f"{context.master} has given no executor within {FIRST_SECONDS:.0f} s",
                "check the master's page: are workers registered, with free cores and at least 1 GiB of free memory?",
            )
        check()
        time.sleep(0.1)
    return found


def _ask(context: Any, folder: Path, modules: list[str]) -> list[dict[str, str]]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    tasks = 2 * context.defaultParallelism
    try:
        found: list[dict[str, str]] = (
            context.parallelize(range(tasks), tasks).mapPartitions(_question(str(folder), modules)).collect()
        )
        return found
    except (Py4JJavaError, PySparkException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\tat")]
        telling = [line for line in lines if "Cannot run program" in line or "MISMATCH" in line or "Error:" in line]
        raise cannot_run((telling or lines or [type(error).__name__])[0]) from error


def _judge(answer: dict[str, str], root: Path, folder: Path) -> None:
    host = answer["host"]
    if answer["lacks"]:
        raise cannot_run(f"on {host}, {answer['python']} cannot import {answer['lacks']}")
    if answer["read"] != folder.name:
        raise unshared(host, str(root), f"it cannot read a file of the driver's, or write beside it ({answer['read']})")
    mine = folder / answer["name"]
    if not mine.exists() or mine.read_text() != answer["name"]:
        raise unshared(host, str(root), "a file that it wrote is not here")


def _question(folder: str, modules: list[str]) -> Callable[[Iterator[int]], Iterator[dict[str, str]]]:
    """The function that a worker runs. It travels by value, and imports only the standard library."""
    stay = STAY_SECONDS

    def ask(_: Iterator[int]) -> Iterator[dict[str, str]]:
        import importlib
        import pathlib
        import socket
        import sys
        import time
        import uuid

        from pyspark import SparkFiles

        time.sleep(stay)
        lacks, read, name = "", "", uuid.uuid4().hex
        for module in modules:
            try:
                importlib.import_module(module)
            except Exception as error:
                lacks = f"{module} ({type(error).__name__}: {error})"
                break
        try:
            read = pathlib.Path(folder, "driver").read_text()
            pathlib.Path(folder, name).write_text(name)
        except OSError as error:
            read = str(error)
        executor = SparkFiles.getRootDirectory()
        found = {"host": socket.gethostname(), "python": sys.executable, "executor": executor, "name": name}
        yield {**found, "lacks": lacks, "read": read}

    return ask
