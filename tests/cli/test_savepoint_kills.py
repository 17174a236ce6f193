"""kill -9 while a savepoint is made of a living job or at rest, a job is forked, or state is migrated: before each file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from savepoint_jobs import ROOT, Place, expected, last
from streamwork.epoch.savepoints import Savepoint
from streamwork.world import RealDisk
from tiers import quick_every

CHILD = """
import os, signal, sys
from streamwork.world import RealDisk

below, left = sys.argv[1], int(sys.argv[2])

def killing(write):
    def written(disk, path, *given):
        global left
        if below in str(path):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return write(disk, path, *given)
    return written

RealDisk.create, RealDisk.replace = killing(RealDisk.create), killing(RealDisk.replace)
from streamwork.__main__ import main

main(sys.argv[3:])
"""
"""The command line, which is killed before it makes the file with that number below a folder."""
LIVED = 0
TARGETS = ("--target", "journal=journal_b.db", "--target", "latest=latest_b.db")


def begin(place: Place, below: str, files: int, *command: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", CHILD, below, str(files), *map(str, command)]
    return subprocess.Popen(words, cwd=place.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def code_of(child: subprocess.Popen[str]) -> int:
    out, errors = child.communicate(timeout=120)
    assert child.returncode in (LIVED, -signal.SIGKILL), out + errors
    return child.returncode


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.give(12)
    place.catch_up()
    return place


def state_of(place: Place, name: str) -> str:
    listed = place.ask("savepoint", "list", "usage.py")["savepoints"]
    found: list[str] = [one["state"] for one in listed if one["name"] == name]
    return found[0] if found else "none"


def check_goes_on(place: Place) -> None:
    """The job has lost nothing; the name is free once what is half-made was dropped; what is complete can be started from."""
    if state_of(place, "one") == "half-made":
        assert place.refused("run", "usage.py", "--mode", "local", "--from", "savepoint:one")["code"] == (
            "SW-SAVEPOINT-INCOMPLETE"
        )
        assert place.refused("savepoint", "create", "usage.py", "one")["code"] == "SW-SAVEPOINT-EXISTS"
        assert place.ask("savepoint", "drop", "usage.py", "one")["complete"] is False
    if state_of(place, "one") == "none":
        place.save("one")
    Savepoint.open(RealDisk(), place.folder / ROOT / "usage" / "savepoints" / "one").check()
    place.give(5)
    place.catch_up()
    assert place.journal() == expected(place.given) and place.latest() == last(expected(place.given))


@pytest.mark.proves("a driver, or the command, killed with -9 during a savepoint")
@pytest.mark.parametrize("files", quick_every(9, [3, 0, 1, 6, 40]))
def test_a_kill_while_a_savepoint_is_made(place: Place, files: int) -> None:
    code = code_of(begin(place, f"savepoints{os.sep}one", files, "savepoint", "create", "usage.py", "one"))
    assert (code == LIVED) is (files == 40)
    assert state_of(place, "one") == ("complete" if code == LIVED else "none" if files == 0 else "half-made")
    check_goes_on(place)


@pytest.mark.parametrize("files", quick_every(2, [2, 0]))
def test_a_kill_of_the_driver_that_makes_a_savepoint(place: Place, files: int) -> None:
    """The process that asked is told, and nothing waits for ever."""
    driver = begin(place, f"savepoints{os.sep}one", files, "run", "usage.py", "--mode", "local", "--no-restart")
    place.give(3)
    place.wait_for_rows(15)
    code, answer, _ = place.call("savepoint", "create", "usage.py", "one")
    assert code_of(driver) == -signal.SIGKILL
    if files:
        assert (code, answer["error"]["code"]) == (3, "SW-SAVEPOINT-EXISTS"), "what the driver has begun is named"
        assert "half-made" in answer["error"]["cause"]
    else:
        assert code == 0 and not answer["was_running"], "nothing was begun: it is made at rest"
    check_goes_on(place)


@pytest.mark.proves("a fork killed with -9")
@pytest.mark.parametrize("files", quick_every(9, [5, 0, 1, 12, 90]))
def test_a_kill_while_a_job_is_forked(place: Place, files: int) -> None:
    place.save("one")
    command = ("savepoint", "fork", "usage.py", "one", "--as", "b", *TARGETS)
    code = code_of(begin(place, f"{ROOT}{os.sep}b{os.sep}", files, *command))
    run = ("run", "usage.py", "--mode", "local", "--until-caught-up", "--no-restart", "--as", "b")
    answered, answer, _ = place.call(*run)
    if code != LIVED and answered:
        assert answer["error"]["code"] in ("SW-FORK-UNKNOWN", "SW-ROOT-UNFINISHED"), "before it has state it is not run"
        forked: dict[str, Any] = place.ask(*command)
        assert forked["job"] == "b"
    place.give(4)
    place.catch_up("--as", "b")
    assert place.journal("journal_b.db") == sorted(set(expected(place.given)) - set(expected(place.given[:12])))
    place.catch_up()
    assert place.journal() == expected(place.given)


MIGRATED = """class Totals(Record):
    schema_version = 2
    text: str = "0 0"

    @classmethod
    def migrate(cls, row, version):
        return cls(f"{row['number']} {row['total']}")

    @property
    def number(self):
        return int(self.text.split()[0])

    @number.setter
    def number(self, value):
        self.text = f"{value} {self.total}"

    @property
    def total(self):
        return int(self.text.split()[1])

    @total.setter
    def total(self, value):
        self.text = f"{self.number} {value}"
"""


@pytest.mark.parametrize("files", quick_every(6, [4, 0, 1, 2, 3, 5, 6, 8, 11, 15, 90]))
def test_a_kill_while_a_start_migrates_the_state(place: Place, files: int) -> None:
    """Before each change of a file of the start: it leaves the old state or the new one, and the next start goes on."""
    file = place.folder / "usage.py"
    old = "class Totals(Record):\n    number: int = 0\n    total: int = 0\n"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, MIGRATED))
    place.give(4)
    run = ("run", "usage.py", "--mode", "local", "--until-caught-up", "--no-restart")
    code = code_of(begin(place, f"{ROOT}{os.sep}usage{os.sep}", files, *run))
    assert (code == LIVED) is (files == 90)
    place.give(3)
    place.catch_up()
    assert place.journal() == expected(place.given) and place.latest() == last(expected(place.given))
