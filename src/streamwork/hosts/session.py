"""Starting Spark: quietly, on loopback, with workers that run this very Python."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamwork.errors import JobFailed, WrongUse
from streamwork.hosts.java import find_java

DEFAULT_MASTER = "local[*]"


def start_spark(master: str = DEFAULT_MASTER, log: Path | None = None, module_folders: list[Path] | None = None) -> Any:
    """A Spark session; the one that is running, if there is one.

    `log` takes what Spark and its workers print; None lets it through to the terminal. `module_folders` are where workers look
    for the job's modules.
    """
    if not master.startswith("local"):
        raise WrongUse(
            "SW-SPARK-MASTER",
            f"master {master!r} is not local",
            'use "local[N]" or "local[*]": this version runs on one machine',
        )
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folders = [str(folder) for folder in module_folders or []]
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    scratch = tempfile.gettempdir()
    builder = (
        SparkSession.builder.master(master)
        .appName("streamwork")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "WARN" if log is None else "ERROR")
        .config("spark.sql.warehouse.dir", str(Path(scratch) / "streamwork-warehouse"))
        .config("spark.python.worker.reuse", "true")
    )
    try:
        with _standard_error_to(log):
            return builder.getOrCreate()
    except Exception as error:
        told = f"; it said: {_tail(log)}" if log is not None else ""
        raise JobFailed(
            "SW-SPARK-START", f"Spark did not start: {error}{told}", "run `streamwork doctor`: it looks for the cause"
        ) from error


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """What is started in here writes its standard error to `log` for as long as it lives; we get ours back."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    ours = os.dup(2)
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return " | ".join(lines[-5:]) or "nothing"
