"""The drills of docs/savepoints.md, with the commands of the page. Before each run new events arrive; a run ends when it has read
them, on the local host.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from commands import call_in

PAGE = (Path(__file__).parents[1] / "docs" / "savepoints.md").read_text()
DRILLS = PAGE.partition("\n## Drills\n")[2]
EACH = 11
"""New events before a run."""
Row = tuple[str, int, int]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


class Drill:
    def __init__(self, title: str, folder: Path) -> None:
        self.folder = folder
        self.given: list[tuple[str, int]] = []
        text = DRILLS.partition(f"\n### {title}\n")[2].partition("\n### ")[0]
        self.commands = [line for block in blocks("sh", text) for line in block.splitlines()]
        assert self.commands, f"no drill {title!r}"
        for code in blocks("python", DRILLS):
            (folder / code.splitlines()[0].removeprefix("# ")).write_text(code)

    def run(self) -> Drill:
        for line in self.commands:
            command, _, expected = line.partition("#")
            self.call(shlex.split(command), expected.strip())
        return self

    def call(self, words: list[str], expected: str = "") -> None:
        if words[0] == "cp":
            shutil.copytree(self.folder / words[-2], self.folder / words[-1])
            return
        assert words[0] == "streamwork"
        if words[1] == "run":
            self.give(EACH)
            words += ["--mode", "local", "--until-caught-up", "--no-restart"]
        code, out, errors = call_in(self.folder, *words[1:], "--json")
        if expected:
            assert json.loads(out)["error"]["code"] == expected, out
        else:
            assert code == 0, (words, out, errors)

    def give(self, count: int) -> None:
        new = [(f"card-{i % 5}", 1 + i % 7) for i in range(len(self.given), len(self.given) + count)]
        with (self.folder / "payments.jsonl").open("a") as file:
            file.writelines(json.dumps({"card": card, "amount": amount}) + "\n" for card, amount in new)
        self.given += new

    def rows(self, database: str = "usage.db") -> list[Row]:
        with closing(sqlite3.connect(self.folder / database)) as db:
            return sorted(db.execute("SELECT card, number, total FROM journal"))

    def expected(self, *lives: tuple[int, int], skip: int = 0, end: int | None = None) -> list[Row]:
        """The journal of lives that have read so many events each with such a fee; the last life reads the rest."""
        state: dict[str, tuple[int, int]] = {}
        fees = [fee for count, fee in lives[:-1] for _ in range(count)]
        events = self.given[:end]
        fees += [lives[-1][1]] * (len(events) - len(fees))
        rows = []
        for (card, amount), fee in zip(events, fees, strict=True):
            number, total = state.get(card, (0, 0))
            state[card] = number + 1, total + amount + fee
            rows.append((card, *state[card]))
        return sorted(rows[skip:])


def test_upgrade_the_code(tmp_path: Path) -> None:
    drill = Drill("Upgrade the code", tmp_path).run()
    assert drill.rows() == drill.expected((EACH, 0), (EACH, 5))


def test_roll_a_bad_upgrade_back_with_its_output(tmp_path: Path) -> None:
    drill = Drill("Roll a bad upgrade back, with its output", tmp_path).run()
    assert len(drill.given) == 4 * EACH and drill.rows() == drill.expected((0, 0))


def test_upgrade_the_engine(tmp_path: Path) -> None:
    """The commands; `tests/test_engine_upgrade.py` has two engines."""
    drill = Drill("Upgrade the engine, and go back", tmp_path).run()
    assert drill.rows() == drill.expected((0, 0))


def test_move_to_another_machine(tmp_path: Path) -> None:
    drill = Drill("Move to another machine", tmp_path).run()
    assert drill.rows() == drill.expected((0, 0))


def test_two_lives_from_one_savepoint(tmp_path: Path) -> None:
    drill = Drill("Two lives from one savepoint", tmp_path).run()
    assert drill.rows() == drill.expected((0, 0), end=4 * EACH)
    assert drill.rows("usage_v2.db") == drill.expected((2 * EACH, 0), (0, 5), skip=2 * EACH, end=3 * EACH)
    assert drill.rows("usage_again.db") == drill.expected((0, 0), skip=EACH)


def test_what_if(tmp_path: Path) -> None:
    drill = Drill("What if", tmp_path).run()
    assert drill.rows() == drill.expected((0, 0), end=EACH)
    assert drill.rows("fee_3.db") == drill.expected((EACH, 0), (0, 3), skip=EACH)


def test_a_b(tmp_path: Path) -> None:
    drill = Drill("A/B", tmp_path).run()
    attach, question = blocks("sql", DRILLS)[0].split(";\n")[:2]
    with closing(sqlite3.connect(tmp_path / "usage.db")) as db:
        db.execute(attach.replace("usage_b.db", str(tmp_path / "usage_b.db")))
        compared = db.execute(question).fetchall()
    assert len(compared) == 5 and all(b > a - 5 * EACH and a != b for _, a, b in compared)
    assert drill.rows() == drill.expected((0, 0), end=2 * EACH)
    assert drill.rows("usage_b.db") == drill.expected((EACH, 0), (0, 5), skip=EACH)


def test_every_drill_is_run() -> None:
    titles = re.findall(r"^### (.*)$", DRILLS, re.MULTILINE)
    assert all(f'Drill("{title}", tmp_path)' in Path(__file__).read_text() for title in titles)


def test_the_errors_that_the_page_names_exist() -> None:
    errors = (Path(__file__).parents[1] / "docs" / "errors.md").read_text()
    named = set(re.findall(r"`(SW-[A-Z-]+)`", PAGE))
    assert named and all(f"| `{code}` |" in errors for code in named)


@pytest.mark.parametrize("fee", [0, 5])
def test_control_the_fee_shows_in_the_rows(tmp_path: Path, fee: int) -> None:
    """A wrong version would be noticed."""
    drill = Drill("Upgrade the code", tmp_path)
    drill.give(EACH)
    assert (drill.expected((0, fee)) == drill.expected((0, 0))) is (fee == 0)
