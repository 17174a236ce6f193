"""The drill of an engine upgrade, with two versions of PySpark: forward and back, by savepoints and by ordinary starts.

It needs a second PySpark. `make test-all` installs one and names its folder; without that the drill is skipped:

    pip install --no-deps --target /tmp/other -r requirements/other-pyspark.txt
    STREAMWORK_OTHER_PYSPARK=/tmp/other python -m pytest tests/test_engine_upgrade.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from savepoint_jobs import Place, expected, last

HERE = Path(__file__).parent
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


def pinned(file: str) -> str:
    """The version of PySpark that a file of requirements names."""
    found = re.findall(r"^pyspark==(\S+)", (HERE.parent / "requirements" / file).read_text(), re.MULTILINE)
    assert len(found) == 1, file
    return str(found[0])


def test_the_page_names_the_versions_that_were_tried() -> None:
    page = (HERE.parent / "docs" / "savepoints.md").read_text()
    (named,) = re.findall(r"with two installed versions of PySpark, (\S+) and (\S+):", page)
    assert named == (pinned("pins.txt"), pinned("other-pyspark.txt")) and len(set(named)) == 2


def test_the_rest_of_the_tests_has_the_other_version() -> None:
    """Without it the drill would be skipped unseen."""
    recipe = re.findall(r"^test-all:.*\n(?:\t.*\n)+", (HERE.parent / "Makefile").read_text(), re.MULTILINE)
    assert len(recipe) == 1 and "$(OTHER)/.installed" in recipe[0] and "STREAMWORK_OTHER_PYSPARK=" in recipe[0]
