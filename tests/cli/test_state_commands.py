"""``streamwork state`` as people type it: the commands of docs/state.md, JSON, and errors."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from commands import call_in

REPO = Path(__file__).parents[2]
PAGE = (REPO / "docs" / "state.md").read_text()


def python_of_the_page() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    return str(block)


def commands_of_the_page(heading: str, number: int = 1) -> list[list[str]]:
    """Those of a `sh` block below a heading."""
    block = PAGE.split(f"## {heading}\n")[1].split("```sh\n")[number].split("```")[0]
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """The job of the page, which has run."""
    made: Path = tmp_path_factory.mktemp("page")
    job = python_of_the_page().split("job.run(")[0].replace("import duckdb\n\n", "")
    (made / "payments.py").write_text(job)
    assert call_in(made, "run", "payments.py", "--mode", "local", "--until-caught-up")[0] == 0
    return made


def test_the_commands_of_the_page(folder: Path) -> None:
    said = []
    for command in commands_of_the_page("State tools"):
        code, out, errors = call_in(folder, *command)
        assert (code, errors) == (0, ""), (command, out, errors)
        said.append(out)
        code, out, _ = call_in(folder, *command, "--json")
        assert code == 0
        assert json.loads(out)["job"] == "payments"
    overview, first, one, prefixed, count, ordered, exported, compared = said
    assert "per-card" in overview and "card" in overview
    assert [line.split() for line in one.splitlines()[3:4]] == [["c1", "2", "6"]]
    assert "per-card in checkpoint 1: 1 of 2 rows" in one
    assert first.count("c2") == prefixed.count("c2") == 1
    assert " 2 " in count
    assert ordered.index("c2") < ordered.index("c1")
    assert "2 rows of per-card in checkpoint 1" in exported
    rows = duckdb.sql(f"SELECT card, payments, total FROM '{folder}/per_card.parquet' ORDER BY card").fetchall()
    assert rows == [("c1", 2, 6), ("c2", 1, 7)]
    assert "+   c1" in compared and "checkpoint 0 -> checkpoint 1" in compared


def test_json_keeps_the_parts_of_a_row_apart(folder: Path) -> None:
    _, out, _ = call_in(folder, "state", "show", "payments.py", "per-card", "--key", "c1", "--json")
    answer = json.loads(out)
    (row,) = answer["state"]
    assert row["key"] == {"card": "c1"} and row["value"] == {"payments": 2, "total": 6} and row["checkpoint"] == 1
    assert (answer["rows"], answer["matching"], answer["at"]["checkpoint"]) == (2, 1, 1)
    _, out, _ = call_in(folder, "state", "diff", "payments.py", "checkpoint:0", "checkpoint:1", "--json")
    (component,) = json.loads(out)["diff"]["components"]
    assert (component["added"], component["gone"], component["changed"]) == (2, 0, 0)
    assert component["examples"][0] == {
        "change": "added",
        "key": {"card": "c1"},
        "before": None,
        "after": {"payments": 2, "total": 6},
        "fields": [],
    }


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("show", "payments.py", "nope"), "SW-STATE-COMPONENT"),
        (("show", "payments.py", "--key", "c1"), "SW-USAGE"),
        (("show", "payments.py", "per-card", "--at", "checkpoint:7"), "SW-CHECKPOINT-UNKNOWN"),
        (("query", "payments.py", "FROM nope"), "SW-STATE-SQL"),
        (("export", "payments.py", "per-card", "x.txt"), "SW-STATE-FORMAT"),
        (("diff", "payments.py", "checkpoint:0", "checkpoint:1", "--component", "nope"), "SW-STATE-COMPONENT"),
        (("show", "--root", ".streamwork", "payments", "per-card"), "SW-STATE-COMPONENT"),
        (("show", "--root", "elsewhere", "payments"), "SW-ROOT-EMPTY"),
    ],
)
def test_errors(folder: Path, arguments: tuple[str, ...], code: str) -> None:
    exit_code, out, _ = call_in(folder, "state", *arguments, "--json")
    assert (exit_code, json.loads(out)["error"]["code"]) == (2, code)


def test_savepoints_are_compared_by_name_also_without_a_job_file(folder: Path) -> None:
    for name in ("one", "two"):
        assert call_in(folder, "savepoint", "create", "payments.py", name)[0] == 0
    code, out, _ = call_in(folder, "savepoint", "diff", "payments.py", "one", "two")
    assert code == 0 and "the states are the same" in out and "savepoint one -> savepoint two" in out
    _, out, _ = call_in(folder, "savepoint", "diff", "payments.py", "checkpoint:0", "two", "--json")
    assert json.loads(out)["diff"]["components"][0]["added"] == 2
    _, out, _ = call_in(
        folder, "state", "show", "--root", ".streamwork", "payments", "per-card", "--at", "savepoint:one", "--json"
    )
    answer = json.loads(out)
    assert [row["key"]["card"] for row in answer["state"]] == ["c1", "c2"]
    assert answer["at"]["savepoint"] == "one"


def test_the_commands_that_change_state(folder: Path, tmp_path: Path) -> None:
    """Those of the page, in the order of the page."""
    here, new = tmp_path / "here", tmp_path / "new"
    shutil.copytree(folder, here)
    said = []
    for command in commands_of_the_page("Changing state"):
        code, out, errors = call_in(here, *command)
        assert (code, errors) == (0, ""), (command, out, errors)
        said.append(out)
    _, dry, made, _, restored, compared, ran = said
    assert "~   c2    total   7        0" in dry and "nothing was written: --dry-run" in dry
    assert "savepoint refund of savepoint before" in made and "~   c2    total   7        0" in restored
    assert "the states are the same" in compared and "begins with savepoint refund" in ran
    new.mkdir()
    for file in ("payments.py", "cards.parquet"):
        shutil.copy(here / file, new)
    for command in commands_of_the_page("Changing state", 2):
        code, out, errors = call_in(new, *command)
        assert (code, errors) == (0, ""), (command, out, errors)
    assert [line.split() for line in out.splitlines()[3:5]] == [["c1", "4", "12"], ["c2", "2", "7"]]
