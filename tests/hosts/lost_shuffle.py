"""A program: a local Spark that loses its shuffle files once, and is used on. It prints whether its JVM lives.

usage: lost_shuffle.py FOLDER MOST_FAILURES    ("-": as Streamwork sets it)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamwork.hosts import session

FAILURES = 10
SECONDS = 120.0


def spoiling(folders: list[str], marker: str) -> Any:
    """The first task that reads removes what the others are to read."""

    def spoil(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        for folder in folders:
            for file in Path(folder).rglob("shuffle_*.data"):
                file.unlink(missing_ok=True)

    return spoil


def main(folder: Path, most: str) -> None:
    set_by_us = session._settings
    wanted = {} if most == "-" else {"spark.executor.heartbeat.maxFailures": most}
    session._settings = lambda *given, **named: {**set_by_us(*given, **named), **wanted}
    log = folder / "spark.log"
    spark = session.start_spark("local[1]", log)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    jvm: Any = spark.sparkContext._jvm
    folders = list(jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs())
    spoil = spoiling([str(one) for one in folders], str(folder / "spoiled"))
    assert spark.range(1000, numPartitions=2).repartition(4).mapInArrow(spoil, "id long").count() == 1000
    process, until = spark.sparkContext._gateway.proc, time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < until:
        if log.read_text(errors="replace").count("Cannot find endpoint") > FAILURES:
            print("lives" if spark.range(7).count() == 7 else "does not count")
            os._exit(0)  # quicker than to stop it
        time.sleep(0.05)
    print(f"exit code {process.poll()}")
    os._exit(0)


main(Path(sys.argv[1]), sys.argv[2])
