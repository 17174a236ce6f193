"""What the documentation says is true: its job runs, its commands work, its lists are whole."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from streamwork.cli.demo import write_transactions

REPO = Path(__file__).parents[1]
README = (REPO / "README.md").read_text()
PROGRAM = Path(sys.executable).parent / "streamwork"


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_readme_s_job_is_the_example() -> None:
    (job,) = blocks("python")
    assert job == (REPO / "examples" / "card_usage.py").read_text()
    code = [line for line in job.splitlines() if line.strip()]
    assert len(code) < 30


@pytest.mark.slow
@pytest.mark.spark
def test_the_readme_s_commands_work_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "card_usage.py").write_text(blocks("python")[0])
    write_transactions(tmp_path / "transactions.jsonl", 1000, cards=10)
    commands = [shlex.split(line, comments=True) for line in blocks("sh")[1].splitlines()]
    assert [command[:2] for command in commands] == [
        ["streamwork", "run"],
        ["streamwork", "run"],
        ["streamwork", "checkpoints"],
    ]
    said = []
    for command in commands:
        answer = subprocess.run([PROGRAM, *command[1:]], capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
        said.append(answer.stdout)
        assert answer.stderr == "", "Spark's noise is off"
    assert said[0].splitlines()[:2] == [f"job card-usage (microbatch), root {tmp_path / '.streamwork'}", "new"]
    assert said[1].splitlines()[1] == "resumed at checkpoint 1"
    assert "completed" in said[2]
    expected = "SELECT card, count(*), sum(amount) FROM read_json('transactions.jsonl') GROUP BY card ORDER BY card"
    assert in_duckdb_s_shell(blocks("sql")[0]) == duckdb.sql(expected).fetchall()


def in_duckdb_s_shell(lines: str) -> list[tuple[Any, ...]]:
    """What the last query gives; of the shell's own commands, `.read` is known."""
    with duckdb.connect() as db:
        for line in lines.splitlines():
            db.execute(Path(line.split()[1]).read_text() if line.startswith(".read ") else line)
        return db.fetchall()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_readme_s_query_finds_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parallelism: int) -> None:
    monkeypatch.chdir(tmp_path)
    job = blocks("python")[0].replace('Job("card-usage")', f'Job("card-usage", parallelism={parallelism})')
    (tmp_path / "card_usage.py").write_text(job)
    write_transactions(tmp_path / "transactions.jsonl", 300, cards=20)
    command = [PROGRAM, "run", "card_usage.py", "--until-caught-up", "--mode", "local"]
    subprocess.run(command, check=True, capture_output=True)
    expected = "SELECT card, count(*), sum(amount) FROM read_json('transactions.jsonl') GROUP BY card ORDER BY card"
    assert in_duckdb_s_shell(blocks("sql")[0]) == duckdb.sql(expected).fetchall()


def test_every_error_code_is_explained_and_every_explained_one_exists() -> None:
    code = re.compile(r"SW-[A-Z]+(?:-[A-Z]+)*")
    used = {c for path in (REPO / "src").rglob("*.py") for c in re.findall(rf'"({code.pattern})"', path.read_text())}
    explained = set(re.findall(rf"^\| `({code.pattern})`", (REPO / "docs" / "errors.md").read_text(), re.MULTILINE))
    assert used == explained


def test_every_package_that_contributing_names_exists_and_the_other_way_round() -> None:
    text = (REPO / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE))))
    source = REPO / "src" / "streamwork"
    packages = {path.parent.name for path in source.glob("*/__init__.py")} | {"errors"}
    assert named == packages
    for file in re.findall(r"\| `(\w+/\w+\.py)` \|", text):
        assert (source / file).is_file(), file


def test_links_lead_somewhere() -> None:
    pages = [REPO / "README.md", REPO / "CONTRIBUTING.md", *(REPO / "examples").rglob("*.md")]
    for page in [*pages, *(REPO / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize(
    "page",
    [
        "delivery",
        "lambda",
        "log",
        "operating",
        pytest.param("semantics", marks=pytest.mark.slow),
        pytest.param("sources", marks=[pytest.mark.spark, pytest.mark.slow]),
        pytest.param("testing", marks=pytest.mark.slow),
        "writing-jobs",
    ],
)
def test_the_examples_of_the_guides_run(tmp_path: Path, page: str) -> None:
    (tmp_path / "example.py").write_text("\n".join(blocks("python", (REPO / "docs" / f"{page}.md").read_text())))
    answer = subprocess.run(
        [sys.executable, "-W", "error", "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr


def test_the_commands_of_the_guide_to_writing_jobs_work_as_written(tmp_path: Path) -> None:
    install, cluster = blocks("sh", (REPO / "docs" / "writing-jobs.md").read_text())
    lines = [line for line in install.splitlines() if line.startswith(("streamwork new", "cd ", "streamwork run"))]
    assert len(lines) == 3 and cluster.count("127.0.0.1:7077") == 2
    ran = subprocess.run(
        ["bash", "-ec", "\n".join(lines)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "page-visits" / "page_visits.db").exists()


def test_the_words_of_other_systems_stand_beside_ours() -> None:
    rows = [line.split("|") for line in (REPO / "docs" / "words.md").read_text().splitlines() if line.startswith("|")]
    assert {len(row) for row in rows} == {7}, "Streamwork, Flink, Spark, Kafka Streams, Storm"
    ours = " ".join(row[1] for row in rows)
    for word in (
        "executor",
        "dispatcher",
        "checkpoint manager",
        "event-based time",
        "watermark",
        "ledger",
        "Session(",
        "as_of=",
    ):
        assert word in ours


@pytest.mark.slow
def test_the_commands_of_the_log_guide_work_as_written(tmp_path: Path) -> None:
    job = blocks("python")[0].split("class Usage")[0]
    (tmp_path / "transaction.py").write_text(job)
    write_transactions(tmp_path / "transactions.jsonl", 100, cards=10)
    said = []
    for line in blocks("sh", (REPO / "docs" / "log.md").read_text())[0].splitlines():
        command = line.replace("streamwork", str(PROGRAM), 1)
        answer = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, f"{line}: {answer.stderr}"
        said.append(answer.stdout)
    assert said[2].count("card-") == 3
    assert sum(partition["end"] for partition in json.loads(said[3])["partitions"]) == 100


def test_the_standby_of_the_operating_guide_starts_a_job_at_rest(tmp_path: Path) -> None:
    (tmp_path / "card_usage.py").write_text(blocks("python")[0])
    write_transactions(tmp_path / "transactions.jsonl", 100, cards=10)
    (line,) = blocks("sh", (REPO / "docs" / "operating.md").read_text())[1].splitlines()
    command = [PROGRAM, *shlex.split(line, comments=True)[1:], "--mode", "local", "--until-caught-up"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "standby: taking over: no driver holds this job\nnew\n" in answer.stdout


def test_the_commands_of_the_operating_guide_work_as_written(tmp_path: Path) -> None:
    (tmp_path / "card_usage.py").write_text(blocks("python")[0])
    write_transactions(tmp_path / "transactions.jsonl", 100, cards=10)
    run = [PROGRAM, "run", "card_usage.py", "--mode", "local", "--until-caught-up"]
    subprocess.run(run, cwd=tmp_path, capture_output=True, check=True)
    said = []
    for line in blocks("sh", (REPO / "docs" / "operating.md").read_text())[0].splitlines():
        command = [PROGRAM, *shlex.split(line, comments=True)[1:]]
        answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, f"{line}: {answer.stderr}"
        said.append(answer.stdout)
    assert (
        "not running" in said[0] and "every file of every checkpoint is intact" in said[1] and "not running" in said[2]
    )
