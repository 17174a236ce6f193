"""An archive of the classes that Spark loads at its start, so that Java need not parse and check them each time.

Most of Spark's start is class loading. Java can map classes from an archive that an earlier run has left (class data sharing); that
takes about half of the start away. The archive belongs to one build of Java and one of Spark, and is of about 150 MB; Java itself
looks whether it fits, and does without it if not. `streamwork doctor --prepare` makes it; nothing depends on it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from streamwork.errors import JobFailed
from streamwork.hosts.java import Java, find_java

OPTIONS = "STREAMWORK_JAVA_OPTIONS"
"""Further options for the Java of a local Spark, as Java takes them."""


def java_options(java: Java) -> list[str]:
    """Options for the Java that a driver starts."""
    given = os.environ.get(OPTIONS, "").split()
    archive = archive_of(java)
    if archive.exists() and not any("Archive" in option for option in given):
        given += _using(java, archive)
    return given


def archive_of(java: Java) -> Path:
    """The path of the archive for this Java and this Spark."""
    name = hashlib.sha256(f"{java.build}\n{java.home}\n{version('pyspark')}".encode()).hexdigest()[:12]
    return _folder() / f"spark-{version('pyspark')}-java-{java.version}-{name}.jsa"


def prepare() -> Path:
    """Start Spark once in a process of its own, and archive the classes that it has loaded."""
    java = find_java()
    archive = archive_of(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    new = archive.with_name(f"{archive.name}.{os.getpid()}")
    try:
        options = [f"-XX:ArchiveClassesAtExit={new}"]
        if not java.shares:  # this build has no archive of Java's own classes, which ours extends
            base = _base_of(new)
            program = java.home / "bin" / "java"
            subprocess.run([program, "-Xshare:dump", f"-XX:SharedArchiveFile={base}"], capture_output=True, check=True)
            options.append(f"-XX:SharedArchiveFile={base}")
        said = _rehearsal(options)
        if not new.exists():
            last = " | ".join(said.splitlines()[-3:])
            raise _failed(f"Java {java.version} at {java.home} has left none; it said: {last or 'nothing'}")
        refused = [line for line in _rehearsal(_using(java, new)).splitlines() if "shared archive" in line]
        if refused:
            raise _failed(f"Java {java.version} at {java.home} does not take its own archive: {refused[0]}")
        if not java.shares:
            _base_of(new).replace(_base_of(archive))
        new.replace(archive)
    except (OSError, subprocess.CalledProcessError) as error:
        raise _failed(str(error)) from error
    finally:
        for left in (new, _base_of(new)):
            left.unlink(missing_ok=True)
    return archive


def _rehearsal(options: list[str]) -> str:
    """Starts Spark in a process of its own. Returns what it said.

    Java writes an archive when it ends, behind the back of the process that has started it. Both hold the pipe, which is at its end
    when both are.
    """
    process = subprocess.run(
        [sys.executable, "-c", "from streamwork.hosts.archive import rehearse; rehearse()"],
        env={**os.environ, OPTIONS: " ".join(options)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return process.stdout


def rehearse() -> None:
    """One job with what every epoch uses: Python tasks, an exchange, and a collect."""
    from streamwork.hosts.session import start_spark

    spark = start_spark("local[2]")
    shared = spark.sparkContext.broadcast(b"layout")
    frame = spark.range(2, numPartitions=2).mapInArrow(_parcels, "__instance int, __order long, content binary")
    frame = frame.repartitionById(2, "__instance").sortWithinPartitions("__order").mapInArrow(_same, frame.schema)
    assert len(frame.collect()) == 2
    shared.destroy()
    spark.stop()


def _parcels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        order = batch.column(0)
        yield pa.record_batch(
            {"__instance": order.cast(pa.int32()), "__order": order, "content": [b"parcel"] * batch.num_rows}
        )


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _folder() -> Path:
    return Path(sys.prefix) / "share" / "streamwork"


def _base_of(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.base")


def _using(java: Java, archive: Path) -> list[str]:
    """The options to use an archive. Without them Java reports one that does not fit on standard output, which is ours."""
    files = str(archive) if java.shares else f"{_base_of(archive)}{os.pathsep}{archive}"
    return [f"-XX:SharedArchiveFile={files}", "-Xlog:disable", "-Xlog:all=warning:stderr"]


def _failed(why: str) -> JobFailed:
    return JobFailed(
        "SW-JAVA-ARCHIVE",
        f"no archive of Spark's classes could be made: {why}",
        "continue without it: it only makes starts faster. `streamwork doctor` checks whether Spark itself works",
    )
