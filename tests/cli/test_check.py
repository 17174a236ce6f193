"""``streamwork check``, and the page about evolution, block by block."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commands import call_in
from fatal_disk import FAILPOINT

PAGE = Path(__file__).parents[2] / "docs" / "evolution.md"


class Followed:
    """The blocks of the page, in order, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blocks = re.findall(r"```(python|sh)\n(.*?)```", PAGE.read_text(), re.DOTALL)
        self.given = 0

    def give(self, count: int) -> None:
        """More payments."""
        with (self.folder / "payments.jsonl").open("a") as file:
            for n in range(self.given, self.given + count):
                file.write(json.dumps({"card": f"c{n % 7}", "cents": n}) + "\n")
        self.given += count

    def follow(self, until: int) -> list[str]:
        """Execute so many blocks. Returns what the commands said."""
        said = []
        for kind, text in self.blocks[:until]:
            if kind == "python":
                name = text.splitlines()[0].removeprefix("# ")
                (self.folder / name).write_text(text)
                self.give(20)
            for line in text.splitlines() if kind == "sh" else ():
                code, out, errors = call_in(self.folder, *shlex.split(line, comments=True)[1:])
                assert code == (3 if "# refused" in line else 0), out + errors
                said.append(out + errors)
        self.blocks = self.blocks[until:]
        return said

    def totals(self) -> dict[str, int]:
        with closing(sqlite3.connect(self.folder / "usage.db")) as db:
            return dict(db.execute("SELECT card, cents FROM usage"))

    def expected(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for n in range(self.given):
            found[f"c{n % 7}"] = found.get(f"c{n % 7}", 0) + n
        return found

    def check(self, *words: str, code: int = 0) -> Any:
        ended, out, errors = call_in(self.folder, "check", "usage.py", "--json", *words)
        assert ended == code, out + errors
        return json.loads(out)


@pytest.fixture
def page(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def test_the_page_is_true(page: Followed) -> None:
    assert [kind for kind, _ in page.blocks] == [*["python", "sh"] * 3, "sh"]
    page.follow(2)
    assert page.totals() == page.expected()
    said = page.follow(2)
    assert "note (string) is no longer there" in said[0]
    assert "per-account" in said[1]
    assert "the job fits: a start goes on, as it is" in said[3]
    code, out, errors = call_in(page.folder, "checkpoints", "usage.py", "--verify")
    assert code == 0, out + errors
    assert page.totals() == page.expected()
    (checked, _) = page.follow(2)
    assert page.totals() == page.expected()
    found = json.loads(checked)
    assert found["fits"]
    assert found["rewrites"]
    (rescaled,) = page.follow(1)
    assert "3 instances -> 5" in rescaled
    page.give(20)
    code, out, errors = call_in(page.folder, "run", "usage.py", "--mode", "local", "--until-caught-up")
    assert code == 0, out + errors
    assert page.totals() == page.expected()


@pytest.mark.slow
def test_kill_9_before_any_change_of_a_file_leaves_the_old_version_or_the_new_one(page: Followed) -> None:
    """The process is killed, for real, in the start that renames, migrates and divides; what is left is started again."""
    page.follow(2)
    text = page.blocks[2][1].replace('id="purchases"', 'id="payments"')  # the third version, straight from the first
    text = text.replace(
        "class Purchase(Event):", 'class Purchase(Event):\n    renamed_from: ClassVar = {"account": "card"}'
    )
    text = text.replace('id="per-account"', 'id="per-account", renamed_from="per-card"')
    (page.folder / "usage.py").write_text(text.replace('id="totals"', 'id="totals", renamed_from="usage"'))
    (page.folder / "failpoint.py").write_text(FAILPOINT)
    saved = page.folder.parent / "saved"
    shutil.copytree(page.folder, saved)
    step, versions = 0, set[bool]()
    while True:
        shutil.rmtree(page.folder)
        shutil.copytree(saved, page.folder)
        page.given = 20
        words = [sys.executable, "failpoint.py", str(step), "run", "usage.py", "--mode", "local", "--until-caught-up"]
        ended = subprocess.run(words, cwd=page.folder, capture_output=True, text=True, check=False)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        versions.add(page.check()["rewrites"])
        page.give(20)
        code, out, errors = call_in(page.folder, "run", "usage.py", "--mode", "local", "--until-caught-up")
        assert code == 0, out + errors
        assert page.totals() == page.expected()
        step += 3
    assert step >= 9, "it changes more files than that"
    assert versions == {True, False}, "killed before the new checkpoint counts, and after"


def test_each_component_is_compared(page: Followed) -> None:
    page.follow(1)
    found = page.check()
    assert (found["fits"], found["rewrites"], found["against"]) == (True, False, "")
    assert {one["change"] for one in found["components"]} == {"added"}
    page.follow(1)
    found = page.check()
    assert [(one["component"], one["kind"], one["change"]) for one in found["components"]] == [
        ("payments", "source", "same"),
        ("per-card", "state", "same"),
        ("usage", "sink", "same"),
    ]
    (page.folder / "usage.py").write_text(page.blocks[0][1])
    before = {path: path.read_bytes() for path in (page.folder / ".streamwork").rglob("*.json")}
    found = page.check(code=3)
    assert [reason["code"] for reason in found["reasons"]] == ["SW-STATE-SCHEMA"]
    found = page.check("--against", "savepoint:before-v2", "--drop-state", "per-account.note")
    assert found["against"] == "savepoint before-v2"
    changes = {one["component"]: one for one in found["components"]}
    assert {one["change"] for one in changes.values()} == {"changed"}
    assert changes["totals"]["details"] == ["was usage"]
    assert changes["per-account"]["details"] == [
        "was per-card",
        "card is now account",
        "payments is now purchases",
        "largest (int64) is new, with its default",
        "note is dropped",
        "parallelism was 1 and is now 3",
    ]
    assert page.check("--against", "savepoint:nothing", code=2)["error"]["code"].startswith("SW-SAVEPOINT")
    assert {path: path.read_bytes() for path in before} == before, "nothing is written"


def test_all_reasons_are_listed(page: Followed) -> None:
    page.follow(2)
    text = (page.folder / "usage.py").read_text()
    text = (
        text.replace('id="payments"', 'id="p"')
        .replace("note: str", "note: int")
        .replace('note: int = ""', "note: int = 0")
    )
    (page.folder / "usage.py").write_text(text)
    found = page.check(code=3)
    assert [reason["code"] for reason in found["reasons"]] == ["SW-SOURCE-ORPHAN", "SW-STATE-SCHEMA"]
    assert [one["change"] for one in found["components"]] == ["added", "gone", "changed", "same"]
