"""Starting Spark: quietly, with workers that run this very Python and find this very code.

On this machine workers look where this process looks. On a cluster they are sent the package and the job's modules; Python
itself and the packages that both import are expected there, at the same place (`hosts.probe` looks).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamwork.errors import JobFailed
from streamwork.hosts.archive import java_options
from streamwork.hosts.java import Java, find_java
from streamwork.hosts.master import DEFAULT_MASTER, address_towards, check_master, is_remote
from streamwork.hosts.shipping import ship


def start_spark(master: str = DEFAULT_MASTER, log: Path | None = None, module_folders: list[Path] | None = None) -> Any:
    """A Spark session; the one that is running, if there is one.

    `log` takes what Spark and its workers print; None lets it through to the terminal. `module_folders` are where workers look
    for the job's modules.
    """
    master = check_master(master)
    from pyspark.sql import SparkSession

    folders = module_folders or []
    running = SparkSession.getActiveSession()
    if running is not None:
        if is_remote(running.sparkContext.master):
            ship(running.sparkContext, folders)
        return running
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1")  # it only puts a command line together
    _choose_python(master, folders)
    try:
        with _standard_error_to(log):
            session = _builder(master, java, quiet=log is not None).getOrCreate()
            if is_remote(master):
                ship(session.sparkContext, folders)
            return session
    except Exception as error:
        told = f"; it said: {_tail(log)}" if log is not None else ""
        what = f" on {master}" if is_remote(master) else ""
        raise JobFailed(
            "SW-SPARK-START",
            f"Spark did not start{what}: {error}{told}",
            f"is the master at {master} up, and does it answer?"
            if what
            else "run `streamwork doctor`: it looks for the cause",
        ) from error


def _choose_python(master: str, folders: list[Path]) -> None:
    """Workers run this very Python, unless somebody knows where another machine has it."""
    if is_remote(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        return
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    places = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(places)


def _builder(master: str, java: Java, quiet: bool) -> Any:
    from pyspark.sql import SparkSession

    here = os.environ.get("SPARK_LOCAL_IP") or address_towards(master)
    os.environ.setdefault("SPARK_LOCAL_IP", here)
    builder = (
        SparkSession.builder.master(master)
        .appName("streamwork")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", here)
        .config("spark.driver.bindAddress", here)
        .config("spark.log.level", "ERROR" if quiet else "WARN")
        .config("spark.sql.warehouse.dir", str(Path(tempfile.gettempdir()) / "streamwork-warehouse"))
        .config("spark.python.worker.reuse", "true")
    )
    if options := java_options(java):
        # Not `extraJavaOptions`, which belong to people: these stand before them.
        builder = builder.config("spark.driver.defaultJavaOptions", " ".join(options))
    if is_remote(master):
        # What a lost executor had computed is soon computed again: do not wait for its return three times five seconds.
        builder = builder.config("spark.shuffle.io.retryWait", "1s")
    return builder


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
