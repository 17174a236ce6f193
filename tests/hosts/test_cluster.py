"""A standalone cluster of two workers: code is sent there, the root must be shared, and what is missing is said by name."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, command_line, environment, standing
from sample import payments
from streamwork import WrongUse
from streamwork.hosts.master import address_towards, check_master, is_remote
from streamwork.hosts.shipping import pack

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standing(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def driver(folder: Path, *command: str, path: tuple[Path, ...] = ()) -> Any:
    """What a driver, with Spark in a process of its own, prints as JSON on its last line."""
    answer = subprocess.run(
        command, cwd=folder, env=environment(folder, *path), capture_output=True, text=True, timeout=240
    )
    assert answer.stdout.strip(), answer.stderr
    return json.loads(answer.stdout.strip())


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_runs_on_all_machines_with_the_code_of_this_one(tmp_path: Path, cluster: Cluster) -> None:
    for name in ("lost_job.py", "sample.py"):  # the job, and a module beside it; neither is installed anywhere
        (tmp_path / name).write_text((TESTS / name).read_text())
    events = [json.dumps({"card": event.card, "amount": event.amount}) for event in payments(40)]
    (tmp_path / "payments.jsonl").write_text("\n".join(events) + "\n")
    command = command_line("run", "lost_job.py:telling", "--master", cluster.url, "--until-caught-up", "--json")
    outcome = driver(tmp_path, *command)
    assert (outcome.get("events"), outcome.get("restarts")) == (40, 0), outcome
    with closing(sqlite3.connect(tmp_path / "where.db")) as db:
        places = db.execute("SELECT DISTINCT process, package FROM places").fetchall()
    assert len({process for process, _ in places}) == 2, "both workers had their part"
    assert all(".zip/streamwork" in package for _, package in places), "they ran the package that was sent"


@pytest.mark.slow
@pytest.mark.spark
def test_what_the_machines_lack_is_said_before_anything_is_planned(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "only_here.py").write_text("")
    question = str(TESTS / "cluster_questions.py")
    told = driver(tmp_path, sys.executable, question, cluster.url, str(tmp_path), path=(TESTS, tmp_path / "only"))
    assert told.pop("all is well") == "fine"
    assert told.pop("left behind") == "[]"
    starts = {
        "a module that is only here": ("SW-SPARK-WORKERS", "cannot import only_here (ModuleNotFoundError"),
        "a root that is not shared": ("SW-ROOT-UNSHARED", "/proc/self/cwd/root"),
        "an executor that came later": ("SW-ROOT-UNSHARED", str(tmp_path / "elsewhere")),
        "no Python": ("SW-SPARK-WORKERS", "/nowhere/python"),
    }
    for case, (code, words) in starts.items():
        assert told[case].startswith(code) and words in told[case], told


def test_masters_that_can_be_had() -> None:
    assert [check_master(master) for master in ("local", "local[*]", "local[2]", "local[2, 1]")] == [
        "local[1,4]",
        "local[*,4]",
        "local[2,4]",
        "local[2, 1]",
    ]
    assert check_master("spark://one:7077,two:7077") == "spark://one:7077,two:7077"
    for master in ("yarn", "spark://one", "k8s://https://x", "local[x]", "localhost:7077"):
        with pytest.raises(WrongUse, match="SW-SPARK-MASTER"):
            check_master(master)
    assert is_remote("spark://one:7077") and not is_remote("local[2]")
    assert address_towards("spark://127.0.0.1:7077") == "127.0.0.1"


def test_only_modules_are_sent_and_the_same_ones_under_the_same_name(tmp_path: Path) -> None:
    import zipfile

    folder = tmp_path / "job"
    for name in ("job.py", "helpers/parts.py", "data.csv", ".streamwork/x.py", "env/lib/y.py", "env/pyvenv.cfg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    first = pack(folder, folder, "job")
    content = first.read_bytes()
    assert zipfile.ZipFile(first).namelist() == ["job.py", "helpers/parts.py"]
    assert pack(folder, folder, "job") == first and first.read_bytes() == content
    (folder / "job.py").write_text("x = 1")
    assert pack(folder, folder, "job").name != first.name
