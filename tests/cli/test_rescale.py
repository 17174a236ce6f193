"""``streamwork rescale``: a job at rest gets another number of instances; one that runs, or cannot be divided, is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import call_in
from fatal_disk import FAILPOINT
from waiting import wait_for

PROGRAM = Path(sys.executable).parent / "streamwork"
JOB = """
from streamwork import Event, Job, JsonLines, KeyedOperator, Record, SqliteSink

class Payment(Event):
    card: str
    amount: int

class Usage(Event):
    card: str
    total: int

class Totals(Record):
    total: int = 0

class PerCard(KeyedOperator[Payment, Totals, Usage]):
    def apply(self, event, state, collector):
        state.total += event.amount
        collector.emit(Usage(event.card, state.total))

job = Job("usage", checkpoint_every=0)
payments = job.source(JsonLines("payments.jsonl", Payment, max_events=50), id="payments")
payments.apply(PerCard(), key="card", id="per-card", parallelism={parallelism}).sink(
    SqliteSink("usage.db", "usage", key="card"), id="usage"
)
"""


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.given = 0

    def write(self, parallelism: int) -> None:
        (self.folder / "job.py").write_text(JOB.format(parallelism=parallelism))

    def give(self, count: int) -> None:
        with (self.folder / "payments.jsonl").open("a") as file:
            for number in range(self.given, self.given + count):
                file.write(f'{{"card": "c{number % 97}", "amount": {number}}}\n')
        self.given += count

    def call(self, *words: str, code: int = 0) -> Any:
        ended, out, errors = call_in(self.folder, *words, "--json")
        assert ended == code, out + errors
        return json.loads(out)

    def run(self) -> None:
        self.call("run", "job.py", "--mode", "local", "--until-caught-up", "--no-restart")

    def check(self) -> None:
        import sqlite3
        from contextlib import closing

        expected: dict[str, int] = {}
        for number in range(self.given):
            expected[f"c{number % 97}"] = expected.get(f"c{number % 97}", 0) + number
        with closing(sqlite3.connect(self.folder / "usage.db")) as db:
            assert dict(db.execute("SELECT card, total FROM usage")) == expected

    def instances(self) -> int:
        return len(self.newest()["components"]["per-card"])

    def newest(self) -> Any:
        folder = self.folder / ".streamwork" / "usage" / "checkpoints"
        completed = [path for path in folder.glob("*.json") if path.name.count(".") == 1]
        return json.loads(max(completed).read_text())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write(2)
    made.give(300)
    made.run()
    return made


def test_a_job_at_rest_is_rescaled_and_goes_on(project: Project) -> None:
    done = project.call("rescale", "job.py", "per-card=8")
    (one,) = done["components"]
    assert (one["before"], one["now"], one["code"], one["rows"]) == (2, 8, 2, 97)
    assert done["checkpoint"] == done["base"] + 1
    assert "change it to 8" in done["notes"][0]
    assert project.instances() == 8
    again = project.call("rescale", "job.py", "per-card=8")
    assert again["checkpoint"] == again["base"] == done["checkpoint"], "nothing to do"
    project.write(8)
    project.give(200)
    project.run()
    project.check()
    assert project.instances() == 8
    project.write(3)
    project.give(100)
    project.run()  # any start divides it as the job file says
    project.check()
    assert project.instances() == 3


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["per-card"], 2, "SW-USAGE"),
        (["per-card=0"], 2, "SW-USAGE"),
        (["per-card=1000"], 2, "SW-JOB-SETTING"),
        (["payments=2"], 2, "SW-USAGE"),
        (["nothing=2"], 2, "SW-USAGE"),
    ],
)
def test_what_makes_no_sense_is_named(project: Project, words: list[str], code: int, error: str) -> None:
    before = project.newest()
    assert project.call("rescale", "job.py", *words, code=code)["error"]["code"] == error
    assert project.newest() == before


def test_a_job_that_has_never_run_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write(2)
    assert project.call("rescale", "job.py", "per-card=3", code=2)["error"]["code"] == "SW-ROOT-EMPTY"


@pytest.mark.slow
def test_a_job_that_runs_is_refused(project: Project) -> None:
    command = [PROGRAM, "run", "job.py", "--mode", "local"]
    with subprocess.Popen(command, cwd=project.folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
        try:
            project.give(10)
            positions = {"payments/0": 0}

            def has_read() -> bool:
                positions.update(project.newest()["positions"])
                return running.poll() is not None or project.newest()["fence"] > 1

            wait_for(has_read)
            assert project.call("rescale", "job.py", "per-card=8", code=3)["error"]["code"] == "SW-DRIVER-ALIVE"
            assert project.instances() == 2
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait()
    project.check()


@pytest.mark.slow
def test_kill_9_before_any_change_of_a_file_leaves_the_old_layout_or_the_new_one(project: Project) -> None:
    """The process is killed, for real; then the job goes on with its old parallelism, or is rescaled once more."""
    (project.folder / "failpoint.py").write_text(FAILPOINT)
    layouts, step = [], 0
    while True:
        target = 8 if project.instances() == 2 else 2
        words = [sys.executable, "failpoint.py", str(step), "rescale", "job.py", f"per-card={target}"]
        ended = subprocess.run(words, cwd=project.folder, capture_output=True, env={**os.environ}, check=False)
        layouts.append(project.instances())
        assert layouts[-1] in (2, 8)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        project.write(layouts[-1] if step % 2 else 10 - layouts[-1])
        project.give(20)
        project.run()
        project.check()
        step += 2
    assert step >= 10, "it changes more files than that"
