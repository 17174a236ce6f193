"""Starts Spark, quietly, with workers that run the same Python and the same code as this process.

On this machine workers have the module path of this process. On a cluster they are sent the package and the job's modules; Python
itself and the packages that both import are expected there, at the same place (`hosts.probe` looks).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamwork.errors import JobFailed
from streamwork.hosts.archive import java_options
from streamwork.hosts.gateway import Jvm, is_given
from streamwork.hosts.java import Java, find_java
from streamwork.hosts.master import DEFAULT_MASTER, address_towards, check_master, is_remote, reach
from streamwork.hosts.shipping import ship
from streamwork.hosts.spark_life import forget_spark

DAEMON = Path(__file__).parent / "daemon" / "streamwork_daemon.py"
"""Starts the Python workers on this machine. On a cluster, which receives no signals of the driver, Spark's own daemon does."""


def start_spark(
    master: str = DEFAULT_MASTER,
    log: Path | None = None,
    module_folders: list[Path] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Any:
    """A Spark session: the running one, if there is one.

    `log` receives the output of Spark and its workers; with None it goes to the terminal. `module_folders` are where workers look
    for the job's modules. `check` is called often while Spark starts; if it raises, the start is given up.
    """
    master = check_master(master)
    from pyspark.sql import SparkSession

    folders = module_folders or []
    running = SparkSession.getActiveSession()
    if running is not None:
        if is_remote(running.sparkContext.master):
            ship(running.sparkContext, folders)
        return running
    reach(master)
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1")  # the launcher only builds a command line
    _choose_python(master, folders)
    try:
        session = _start(_settings(master, java, quiet=log is not None), log, check)
        if is_remote(master):
            ship(session.sparkContext, folders)
        return session
    except Exception as error:
        forget_spark()
        check()
        told = f"; it said: {_tail(log)}" if log is not None else ""
        what = f" on {master}" if is_remote(master) else ""
        raise JobFailed(
            "SW-SPARK-START",
            f"Spark did not start{what}: {_reason(error)}{told}",
            f"is the master at {master} up, and does it answer? Its log says under which address it does"
            if what
            else "run `streamwork doctor`: it looks for the cause",
        ) from error


def _start(settings: dict[str, str], log: Path | None, check: Callable[[], None]) -> Any:
    """1. the JVM, 2. the gateway to it, 3. Spark in it. The JVM is killed if `check` raises meanwhile."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config(map=settings)
    with _own_interrupt():
        if is_given():
            return builder.getOrCreate()
        jvm = Jvm(settings, log)  # 1
        SparkContext._ensure_initialized(gateway=jvm.connect(check))  # 2
        with jvm.killed_when(lambda: _raises(check)):
            return builder.getOrCreate()  # 3


@contextlib.contextmanager
def _own_interrupt() -> Iterator[None]:
    """Restore the SIGINT handler: PySpark replaces it by one that cancels all jobs and raises."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _raises(check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception:
        return True
    return False


def _reason(error: Exception) -> str:
    """The error text of Spark, without the Java stack trace."""
    try:
        text = str(error)
    except Exception:  # py4j asks the JVM for the text
        return "its JVM has ended"
    lines = [line.strip(" :") for line in text.splitlines() if line.strip() and not line.startswith("\tat")]
    telling = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (telling or lines or [type(error).__name__])[0]


def _choose_python(master: str, folders: list[Path]) -> None:
    """Workers run the same Python, unless PYSPARK_PYTHON names another path."""
    if is_remote(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        return
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    places = [str(DAEMON.parent), *map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(places))


def _settings(master: str, java: Java, quiet: bool) -> dict[str, str]:
    here = os.environ.get("SPARK_LOCAL_IP") or address_towards(master)
    os.environ.setdefault("SPARK_LOCAL_IP", here)
    settings = {
        "spark.master": master,
        "spark.app.name": "streamwork",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": here,
        "spark.driver.bindAddress": here,
        "spark.log.level": "ERROR" if quiet else "WARN",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "streamwork-warehouse"),
        "spark.python.worker.reuse": "true",
        # Where there are not enough slots for a gang, report it after seconds, not after ten minutes.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "5",
    }
    if options := java_options(java):
        # Not `extraJavaOptions`, which users set: these come before them.
        settings["spark.driver.defaultJavaOptions"] = " ".join(options)
    if is_remote(master):
        # The output of a lost executor is recomputed: do not wait three times five seconds for its return.
        settings["spark.shuffle.io.retryWait"] = "1s"
    else:
        settings["spark.python.daemon.module"] = DAEMON.stem
        # When a shuffle file is lost, Spark forgets the one executor that a local Spark has, which cannot register again: its
        # heartbeats fail from then on, and after ten minutes of that the JVM would end itself (exit code 56).
        settings["spark.executor.heartbeat.maxFailures"] = str(2**31 - 1)
    return settings


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    told = [
        line.strip() for line in lines if line.strip() and not line.startswith("\t")
    ]  # without the Java stack trace
    return " | ".join(told[-3:]) or "nothing"
