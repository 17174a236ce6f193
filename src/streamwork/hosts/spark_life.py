"""Is the Spark of this process still there? A restart uses it again if it is, and makes a new one if it is not."""

from __future__ import annotations

import contextlib
from typing import Any

from streamwork.errors import JobFailed, StreamworkError


def spark_is_gone() -> bool:
    """True if there was a Spark in this process, and its JVM does not answer any more, or has stopped it."""
    context = _context()
    if context is None:
        return False
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:  # py4j has many ways to say that nobody is there
        return True


def forget_spark() -> None:
    """Drop a Spark that is gone, or has not come up, so that the next one is started afresh."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is None:
        return
    if (context := _context()) is not None:
        for _ in range(2):  # the first try fails at the JVM, and gets no further; the second leaves it out
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
    """The error to raise instead of `error` if that only says, in some words, that Spark is gone."""
    if isinstance(error, StreamworkError) or not isinstance(error, Exception) or not spark_is_gone():
        return None
    return JobFailed(
        "SW-SPARK-FAILED",
        f"Spark is gone: its JVM has ended ({type(error).__name__}: {error})",
        "look at spark.log in the job's folder, and at the machine's memory: the last checkpoint is good",
    )


def _context() -> Any:
    from pyspark import SparkContext

    return SparkContext._active_spark_context
