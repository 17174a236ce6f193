"""Detects whether the Spark of this process is still alive. A restart reuses it, or starts a new one."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamwork.errors import JobFailed, StreamworkError

ASKS = 3
ASK_SECONDS = 0.5
"""Attempts at a call into a living JVM before it counts as gone: dropping a working Spark would end every job on it."""
LAST_LINES = 5
KEEP_WARM_SECONDS = 25.0
"""Interval of keep-alive jobs. Spark ends Python workers, with the state that they cache, after an idle minute."""


def spark_is_gone(sleep: Callable[[float], None] = time.sleep) -> bool:
    """True if there was a Spark in this process, and its JVM has ended, does not answer, or has stopped it."""
    context = _context()
    if context is None:
        return False
    process = _process()
    for asked in range(ASKS):
        if process is not None and process.poll() is not None:
            return True
        try:
            return bool(context._jsc.sc().isStopped())
        except Exception:  # py4j raises many types; its next call opens a new connection
            if asked + 1 < ASKS:
                sleep(ASK_SECONDS)
    return True


def how_it_ended(seconds: float = 5.0) -> str:
    """How the JVM of a lost Spark ended: its process, its exit code, and the last lines of its log."""
    process = _process()
    if process is None:
        return "its JVM was not started by this process"
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return f"its JVM (process {process.pid}) {_end_of(process.returncode)}{_last_lines()}"


def _end_of(code: int | None) -> str:
    if code is None:
        return "lives, but Spark in it has stopped or does not answer"
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL: by a user, or by the kernel because memory ran out"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    known = {50: "an uncaught exception", 51: "an uncaught exception", 52: "its memory was used up"}
    return f"ended with exit code {code}" + (f" ({known[code]})" if code in known else "")


def _last_lines() -> str:
    from pyspark import SparkContext

    log: Path | None = getattr(SparkContext._gateway, "log", None)
    try:
        lines = [] if log is None else log.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    told = [line.strip() for line in lines if line.strip() and not line.startswith("\t")][-LAST_LINES:]
    return f"; the last lines of {log}: {' | '.join(told)}" if told else ""


def move_log(to: Path) -> None:
    """Rename the log of the Spark that runs in this process, which goes on writing it."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    log: Path | None = getattr(gateway, "log", None)
    if log is not None and log.exists():
        log.replace(to)
        gateway.log = to


def _process() -> subprocess.Popen[bytes] | None:
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def forget_spark() -> None:
    """Drop a Spark that is gone or failed to start, so that a new one can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is None:
        return
    if (context := _context()) is not None:
        for _ in range(2):  # the first call fails at the JVM; the second skips it
            with contextlib.suppress(Exception):
                context.stop()
    with contextlib.suppress(Exception):
        gateway.shutdown()
    if (process := getattr(gateway, "proc", None)) is not None and process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # a JVM that still lives ends
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def spark_gone(error: BaseException) -> JobFailed | None:
    """The error to raise instead of `error` if Spark is gone; None if it is alive."""
    if isinstance(error, StreamworkError) or not isinstance(error, Exception) or not spark_is_gone():
        return None
    return JobFailed(
        "SW-SPARK-FAILED",
        f"Spark is gone: {how_it_ended()} ({type(error).__name__}: {error})",
        "read spark.log in the job's folder, and check the machine's memory: the last checkpoint is good",
    )


def _context() -> Any:
    from pyspark import SparkContext

    return SparkContext._active_spark_context
