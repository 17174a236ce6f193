"""One driver on a cluster that asks its executors several things that cannot be, and prints what it was told, as JSON.

usage: cluster_questions.py MASTER FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from sample import payments, summing_job
from streamwork import StreamworkError
from streamwork.engine import Assignment
from streamwork.hosts.probe import probe
from streamwork.hosts.session import start_spark
from streamwork.hosts.spark_epochs import SparkEpochs
from streamwork.job import Layout

OWN = Path("/proc/self/cwd")
"""To every process another folder: its own. As a root it is the same name for different places."""


def told(ask: Callable[[], object]) -> str:
    try:
        ask()
    except StreamworkError as error:
        return f"{error.code}: {error.cause}"
    return "fine"


def late(folder: Path) -> None:
    """An epoch whose tasks find no sign of the driver in the job's folder, as on a machine that joined after the probe."""
    layout = Layout.of(summing_job(payments(5), folder / "out.db").graph(), 256)
    host = SparkEpochs(spark)
    host.submit(layout, [Assignment(0, "uid", str(folder / "elsewhere"), 256, 1, 1, {"payments": {"0": (0, 5)}}, {})])
    host.collect(1, lambda: False)


if __name__ == "__main__":
    master, place = sys.argv[1], Path(sys.argv[2])
    spark = start_spark(master, place / "spark.log", [Path(__file__).parent])
    answers = {
        "all is well": told(lambda: probe(spark, place / "root", ["sample"])),
        "a module that is only here": told(lambda: probe(spark, place / "second", ["sample", "only_here"])),
        "a root that is not shared": told(lambda: probe(spark, OWN / "root", ["sample"])),
        "an executor that came later": told(lambda: late(place)),
    }
    spark.sparkContext.pythonExec = "/nowhere/python"
    answers["no Python"] = told(lambda: probe(spark, place / "third", ["sample"]))
    answers["left behind"] = str(sorted(path.name for path in place.glob("*/.probe-*")))
    print(json.dumps(answers))
    spark.stop()
