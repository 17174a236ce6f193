"""The drill of an engine upgrade, with two versions of PySpark: forward and back, by savepoints and by ordinary starts.

It needs a second PySpark, and is skipped without it:

    pip install --no-deps --target /tmp/other pyspark==4.3.0
    STREAMWORK_OTHER_PYSPARK=/tmp/other python -m pytest tests/test_engine_upgrade.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from savepoint_jobs import Place, expected, last

OTHER = os.environ.get("STREAMWORK_OTHER_PYSPARK", "")
CHILD = """
import sys
import pyspark

print(pyspark.__version__, pyspark.__file__, file=sys.stderr)
from streamwork.__main__ import main

main(sys.argv[1:])
"""


def run(place: Place, engine: str, *options: str) -> str:
    """The version of PySpark that ran the job until it had caught up."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([one for one in (engine,) if one])}
    environment.pop("SPARK_HOME", None)
    words = ["run", "usage.py", "--mode", "microbatch", "--until-caught-up", "--no-restart", *options]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *words],
        cwd=place.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    version, file = done.stderr.splitlines()[0].split()
    assert file.startswith(engine or sys.prefix), "it is the one that was asked for"
    return version


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not OTHER, reason="STREAMWORK_OTHER_PYSPARK names no second PySpark")
def test_forward_and_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    versions = []
    for number, engine in enumerate(("", OTHER, "", OTHER, "")):
        place.give(13)
        options = ("--from", f"savepoint:before-{number}") if number in (1, 2) else ()
        versions.append(run(place, engine, *options))
        place.save(f"before-{number + 1}")
        assert place.journal() == expected(place.given) and place.latest() == last(expected(place.given))
    assert len(set(versions[::2])) == 1 and len(set(versions)) == 2, versions
    print("ran on", *versions)
