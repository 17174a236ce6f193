"""``streamwork doctor``: checks that everything a job needs is installed, and advises on what is missing."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import pyarrow as pa

from streamwork.errors import StreamworkError
from streamwork.hosts.archive import archive_of
from streamwork.hosts.java import find_java
from streamwork.hosts.session import start_spark
from streamwork.world import RealDisk

NEEDED_FREE = 1 << 30
TESTED_SPARK = ("4.2", "4.3")


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    check: str
    ok: bool
    found: str
    action: str = ""


def examine(root: Path, show: Callable[[Finding], None] = lambda finding: None) -> list[Finding]:
    """Run all checks and `show` each finding. A check is left out if one that it depends on has failed."""
    findings: list[Finding] = []

    def add(finding: Finding) -> bool:
        findings.append(finding)
        show(finding)
        return finding.ok

    add(_python())
    java, spark = add(_java()), add(_pyspark())
    if java and spark:
        add(_workers())
    add(_disk(root))
    return findings


def _python() -> Finding:
    found = f"{sys.version.split()[0]} at {sys.executable}"
    ok = sys.version_info >= (3, 11)
    return Finding("python", ok, found, "" if ok else "use Python 3.11 or newer")


def _java() -> Finding:
    try:
        java = find_java()
    except StreamworkError as error:
        return Finding("java", False, error.cause, error.action)
    ready = ", with an archive of Spark's classes" if archive_of(java).exists() else ""
    return Finding("java", True, f"Java {java.version} at {java.home} (from {java.origin}){ready}")


def _pyspark() -> Finding:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return Finding("spark", False, "pyspark is not installed", f"{sys.executable} -m pip install 'pyspark==4.2.0'")
    ok = found.startswith(TESTED_SPARK)
    action = "" if ok else f"use pyspark {' or '.join(TESTED_SPARK)}: {sys.executable} -m pip install 'pyspark==4.2.0'"
    return Finding("spark", ok, f"pyspark {found}", action)


def _workers() -> Finding:
    """Start Spark and ask a worker for its Python."""
    log = Path(tempfile.mkdtemp(prefix="streamwork-doctor-")) / "spark.log"
    began = time.monotonic()
    try:
        spark = start_spark("local[1]", log)
        answer = spark.range(1, numPartitions=1).mapInArrow(_who_am_i, "python string, streamwork string").collect()[0]
    except StreamworkError as error:
        return Finding("workers", False, error.cause, error.action)
    except Exception as error:
        return Finding("workers", False, f"a Spark worker failed: {_last_line(error)}", f"see {log}")
    took = time.monotonic() - began
    if answer.python != sys.executable:
        action = "unset PYSPARK_PYTHON and spark.pyspark.python, and start again"
        return Finding("workers", False, f"workers run {answer.python}, not {sys.executable}", action)
    return Finding(
        "workers", True, f"a Spark worker answered, with streamwork {answer.streamwork} ({took:.1f} s to start)"
    )


def _who_am_i(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import streamwork

    for _ in rows:
        pass
    yield pa.record_batch({"python": [sys.executable], "streamwork": [streamwork.__version__]})


def _disk(root: Path) -> Finding:
    """Check that durable files can be written in the root, and that there is free space."""
    place = next(folder for folder in (root, *root.parents) if folder.is_dir())
    probe = place / f".streamwork-doctor-{os.getpid()}"
    disk, began = RealDisk(), time.monotonic()
    try:
        disk.create(probe, b"durable?")
        disk.remove(probe)
    except OSError as error:
        return Finding("disk", False, f"{place}: {error}", "make the folder writable, or choose another with --root")
    took, free = (time.monotonic() - began) * 1000, shutil.disk_usage(place).free
    found = f"{place}: a durable write takes {took:.1f} ms, {free / (1 << 30):.0f} GiB are free"
    return Finding(
        "disk", free >= NEEDED_FREE, found, "" if free >= NEEDED_FREE else "free disk space: less than 1 GiB is left"
    )


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\tat")]
    return lines[-1] if lines else type(error).__name__
