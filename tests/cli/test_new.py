"""`streamwork new` writes a job that runs, whose test passes; `python -m streamwork.job` draws it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from commands import call_in, standing_in
from streamwork.cli.new import create, module_name
from streamwork.errors import StreamworkError
from streamwork.job.__main__ import main as draw

BIN = Path(sys.executable).parent


def call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=folder, capture_output=True, text=True, check=False
    )


def next_commands(said: str) -> list[list[str]]:
    return [line.split() for line in said.partition("what to do next:\n")[2].splitlines()]


def test_what_it_says_to_do_next_works_as_written(tmp_path: Path) -> None:
    answer = call(tmp_path, "streamwork", "new", "page-usage")
    assert (answer.returncode, answer.stderr) == (0, "")
    go, run, dev, test = next_commands(answer.stdout)
    assert (go, dev) == (["cd", "page-usage"], ["streamwork", "dev", "page_usage.py"])
    folder = tmp_path / go[1]
    ran = call(folder, *run)
    assert (ran.returncode, ran.stderr) == (0, "")
    with closing(sqlite3.connect(folder / "page_usage.db")) as db:
        assert db.execute("SELECT * FROM pages ORDER BY page").fetchall() == [
            ("/", 2, 4.75),
            ("/about", 1, 12.0),
            ("/shop", 2, 48.75),
        ]
    tested = call(folder, *test)
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout


@pytest.mark.slow
def test_the_written_test_fails_when_the_written_job_is_wrong(tmp_path: Path) -> None:
    create("sums", tmp_path / "sums")
    file = tmp_path / "sums" / "sums.py"
    file.write_text(file.read_text().replace("state.visits += 1", "state.visits += 2"))
    tested = call(tmp_path / "sums", "python", "-m", "pytest")
    assert tested.returncode == 1
    assert "2 failed, 1 passed" in tested.stdout


@pytest.mark.slow
def test_the_test_finds_its_job_whatever_pytest_is_told_further_up(tmp_path: Path) -> None:
    """Such as in this repository, whose import mode leaves sys.path alone."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\nfilterwarnings = error\n")
    create("inner", tmp_path / "inner")
    tested = call(tmp_path, "python", "-m", "pytest", "inner")
    assert tested.returncode == 0, tested.stdout


def test_what_is_written_is_well_formed(tmp_path: Path) -> None:
    create("page-usage", tmp_path / "new")
    assert call(tmp_path / "new", "ruff", "check", "--isolated", "--select", "E,F,W,I,UP,B,N,RUF", ".").returncode == 0
    assert call(tmp_path / "new", "ruff", "format", "--isolated", "--check", ".").returncode == 0


def test_json_and_a_folder_of_one_s_choice(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _, out, _ = call_in(tmp_path, "new", "clicks", "--folder", "empty", "--json")
    told = json.loads(out)
    assert (told["job"], told["folder"]) == ("clicks", str(tmp_path / "empty"))
    assert sorted(told["files"]) == sorted(path.name for path in (tmp_path / "empty").iterdir())
    assert told["next"][0].startswith("streamwork run clicks.py ")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a b", "SW-JOB-NAME"),
        ("../up", "SW-JOB-NAME"),
        ("", "SW-JOB-NAME"),
        ("x" * 65, "SW-JOB-NAME"),
        ("2fast", "SW-JOBFILE-NAME"),
        ("class", "SW-JOBFILE-NAME"),
        ("json", "SW-JOBFILE-NAME"),
        ("this", "SW-JOBFILE-NAME"),
        ("streamwork", "SW-JOBFILE-NAME"),
        ("pytest", "SW-JOBFILE-NAME"),
        ("__main__", "SW-JOBFILE-NAME"),
    ],
)
def test_bad_names_are_refused_and_nothing_is_written(tmp_path: Path, name: str, code: str) -> None:
    with pytest.raises(StreamworkError) as refused:
        create(name, tmp_path / "new")
    assert (refused.value.code, refused.value.exit_code) == (code, 2)
    assert list(tmp_path.iterdir()) == []


def test_the_module_of_a_job() -> None:
    assert module_name("card-usage-2") == "card_usage_2"


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for name in ("mine", "file"):
        code, _, errors = call_in(tmp_path, "new", name)
        assert code == 3
        assert errors.startswith("SW-NEW-EXISTS ") and "what to do:" in errors
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert (tmp_path / "file").read_text() == "keep"


def test_a_folder_that_cannot_be_made_has_a_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamworkError) as failed:
        create("clicks", tmp_path / "file" / "clicks")
    assert failed.value.code == "SW-IO-FAILED"


# `python -m streamwork.job`


def test_a_job_is_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "page-usage"
    create("page-usage", folder)
    draw = ("python", "-m", "streamwork.job")
    diagram = call(tmp_path, *draw, "page-usage/page_usage.py")
    text = call(folder, *draw, "page_usage.py:page-usage", "--text")
    assert diagram.stdout.splitlines()[0] == "flowchart LR"
    assert "n0 -->|Visit by page| n1" in diagram.stdout
    assert text.stdout.splitlines()[0] == "job page-usage"
    assert [line.split()[0] for line in text.stdout.splitlines()[1:]] == ["id", "visits", "per-page", "pages"]
    assert diagram.stderr == text.stderr == ""
    assert not (folder / "page_usage.db").exists() and not (folder / ".streamwork").exists(), "nothing was run"


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("nowhere.py", None, "SW-JOBFILE-MISSING"),
        ("none.py", "x = 1\n", "SW-JOBFILE-NO-JOB"),
        ("two.py", "from streamwork import Job\na, b = Job('a'), Job('b')\n", "SW-JOBFILE-SEVERAL"),
        ("two.py:c", "from streamwork import Job\na, b = Job('a'), Job('b')\n", "SW-JOBFILE-NO-JOB"),
        ("broken.py", "x = (\n", "SW-JOBFILE-FAILED"),
        ("json.py", "", "SW-JOBFILE-NAME"),
        ("notes.txt", "", "SW-JOBFILE-NAME"),
        ("bare.py", "from streamwork import Job\njob = Job('a')\n", "SW-JOB-NO-SOURCE"),
        ("eager.py", "from streamwork import Job\njob = Job('a')\njob.run()\n", "SW-JOB-RUN-AT-IMPORT"),
        ("--loud", None, "SW-USAGE"),
    ],
)
def test_what_cannot_be_drawn_has_a_code_a_cause_and_an_action(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, text: str | None, code: str
) -> None:
    if text is not None:
        (tmp_path / file.partition(":")[0]).write_text(text)
    with standing_in(tmp_path):
        ended = draw([file])
    out, errors = capsys.readouterr()
    assert (ended, out) == (2, "")
    assert errors.startswith(f"{code}: ") and "what to do:" in errors
    assert "Traceback" not in errors
