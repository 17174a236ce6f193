"""The command line as a person meets it: exit codes, coded errors, JSON, signals, a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from commands import call_in
from streamwork.cli.demo import write_transactions
from waiting import wait_for

REPO = Path(__file__).parents[2]
PROGRAM = str(Path(sys.executable).parent / "streamwork")
JOB = (REPO / "examples" / "card_usage.py").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "card_usage.py").write_text(JOB)
    write_transactions(tmp_path / "transactions.jsonl", 500, cards=10)
    return tmp_path


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In this process."""
    return subprocess.CompletedProcess([], *call_in(folder, *arguments))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call(folder, "run", "card_usage.py", "--mode", "local", "--until-caught-up", *arguments)


def test_a_run_tells_its_root_how_it_started_and_what_it_did(folder: Path) -> None:
    """Two processes, as a person starts them."""
    command = [PROGRAM, "run", "card_usage.py", "--mode", "local", "--until-caught-up"]
    first, second = (subprocess.run(command, cwd=folder, capture_output=True, text=True) for _ in range(2))
    assert first.returncode == second.returncode == 0
    assert first.stdout.splitlines()[:2] == [f"job card-usage (local), root {folder / '.streamwork'}", "new"]
    assert first.stdout.splitlines()[-1].startswith("stopped at checkpoint 1: 500 events in ")
    assert second.stdout.splitlines()[1] == "resumed at checkpoint 1"
    assert first.stderr == second.stderr == ""


def test_json_is_one_object_on_standard_output(folder: Path) -> None:
    answer = run(folder, "--json", "--root", "elsewhere")
    outcome = json.loads(answer.stdout)
    assert (outcome["events"], outcome["checkpoint"], outcome["started"]) == (500, 1, "new")
    assert outcome["root"] == str(folder / "elsewhere")
    listed = json.loads(call(folder, "checkpoints", "--root", "elsewhere", "card-usage", "--json").stdout)
    assert [row["checkpoint"] for row in listed["checkpoints"]] == [1, 0]
    newest = listed["checkpoints"][0]
    assert (newest["state"], newest["events"], newest["keys"], newest["state_files"]) == ("completed", 500, 10, 1)


def test_what_a_job_prints_does_not_disturb_json(folder: Path) -> None:
    (folder / "card_usage.py").write_text(JOB + "transactions.print()\n")
    answer = run(folder, "--json")
    assert json.loads(answer.stdout)["events"] == 500
    assert "transactions: id='t0'" in answer.stderr


def test_checkpoints_names_damage(folder: Path) -> None:
    run(folder)
    (folder / ".streamwork" / "card-usage" / "checkpoints" / "000000000001.json").write_text("{}")
    answer = call(folder, "checkpoints", "card_usage.py")
    assert answer.returncode == 0
    assert "damaged" in answer.stdout and "what to do" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (["run", "nowhere.py"], "SW-JOBFILE-MISSING", 2),
        (["run", "card_usage.py:other"], "SW-JOBFILE-NO-JOB", 2),
        (["run", "two.py"], "SW-JOBFILE-SEVERAL", 2),
        (["run", "broken.py"], "SW-JOBFILE-FAILED", 2),
        (["run", "json.py"], "SW-JOBFILE-NAME", 2),
        (["run", "a-b.py"], "SW-JOBFILE-NAME", 2),
        (["run", "eager.py"], "SW-JOB-RUN-AT-IMPORT", 2),
        (["run", "card_usage.py", "--mode", "fast"], "SW-USAGE", 2),
        (["run", "card_usage.py", "--checkpoint-every", "soon"], "SW-JOB-SETTING", 2),
        (["run", "card_usage.py", "--master", "yarn"], "SW-SPARK-MASTER", 2),
        (["checkpoints", "card_usage.py"], "SW-ROOT-EMPTY", 2),
        (["status", "card_usage.py"], "SW-ROOT-EMPTY", 2),
        (["stop", "card_usage.py"], "SW-ROOT-EMPTY", 2),
        (["run", "card_usage.py", "--retain", "0"], "SW-JOB-SETTING", 2),
        (["run", "card_usage.py", "--lease", "0s"], "SW-JOB-SETTING", 2),
        (["frobnicate"], "SW-USAGE", 2),
        (["run", "bad_line.py", "--mode", "local", "--no-restart"], "SW-SOURCE-BAD-EVENT", 1),
        (["run", "no_file.py", "--mode", "local", "--no-restart"], "SW-SOURCE-MISSING", 1),
    ],
)
def test_mistakes_have_a_code_a_cause_an_action_and_an_exit_code(
    folder: Path, arguments: list[str], code: str, status: int
) -> None:
    (folder / "two.py").write_text("from streamwork import Job\na, b = Job('a'), Job('b')\n")
    (folder / "broken.py").write_text("x = 1\nx.nothing\n")
    (folder / "eager.py").write_text(JOB + "job.run()\n")
    (folder / "bad_line.py").write_text(JOB.replace("transactions.jsonl", "bad.jsonl"))
    (folder / "no_file.py").write_text(JOB.replace("transactions.jsonl", "nowhere.jsonl"))
    (folder / "bad.jsonl").write_text('{"id": "t0", "card": "c", "amount": "much"}\n')
    for name in ("json.py", "a-b.py"):
        (folder / name).write_text(JOB)
    plain = call(folder, *arguments)
    assert (plain.returncode, plain.stdout.count("Traceback"), plain.stderr.count("Traceback")) == (status, 0, 0)
    assert plain.stderr.startswith(code + " ") and "what to do:" in plain.stderr
    as_json = call(folder, *arguments, "--json")
    error = json.loads(as_json.stdout)["error"]
    assert (error["code"], as_json.returncode) == (code, status)
    assert error["cause"] and error["action"]


def test_a_mistake_ends_the_process_with_its_exit_code(folder: Path) -> None:
    ended = subprocess.run([PROGRAM, "run", "nowhere.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("SW-JOBFILE-MISSING ")


def test_a_refusal_has_its_own_exit_code(folder: Path) -> None:
    run(folder)
    (folder / "transactions.jsonl").unlink()
    write_transactions(folder / "transactions.jsonl", 600, seed=2)
    refused = run(folder)
    assert refused.returncode == 3
    assert refused.stderr.startswith("SW-SOURCE-CHANGED")


def test_a_file_that_cannot_be_read_has_a_code_in_every_command(folder: Path) -> None:
    run(folder)
    manifest = next(folder.rglob("checkpoints/000000000000.json"))
    manifest.unlink()
    manifest.symlink_to(manifest)  # an OSError for every user; a file that is missing or a folder is damage
    for command in ("status", "checkpoints"):
        failed = call(folder, command, "card_usage.py")
        assert failed.returncode == 1 and failed.stderr.startswith("SW-IO-FAILED "), failed.stderr


def completed(folder: Path) -> int:
    files = (folder / ".streamwork" / "card-usage" / "checkpoints").glob("????????????.json")
    return max((int(path.stem) for path in files), default=0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_follows_the_file_until_it_is_asked_to_stop(folder: Path, number: signal.Signals) -> None:
    command = [PROGRAM, "run", "card_usage.py", "--mode", "local", "--checkpoint-every", "20ms", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: completed(folder) == 1, process)
        write_transactions(folder / "transactions.jsonl", 7, first=500)
        wait_for(lambda: completed(folder) == 2, process)
        process.send_signal(number)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(out)["events"] == 507


@pytest.mark.slow
@pytest.mark.spark
def test_a_killed_spark_is_replaced_and_ctrl_c_completes_the_epoch_and_ends_well(folder: Path) -> None:
    """Ctrl-C goes to the whole process group: driver, JVM and Python workers. One run for both, as Spark is slow to start."""
    command = [PROGRAM, "run", "card_usage.py", "--json"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for(lambda: completed(folder) == 1, process)
    (java,) = (child for child in psutil.Process(process.pid).children() if "java" in child.name())
    java.kill()
    write_transactions(folder / "transactions.jsonl", 7, first=500)
    wait_for(lambda: completed(folder) > 1, process)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    outcome = json.loads(out)
    assert (outcome["events"], outcome["restarts"], outcome["fence"]) == (507, 1, 2)
    assert "\nfailed: SW-SPARK-FAILED Spark is gone: " in errors and "\nresumed at checkpoint 1\n" in errors


def test_on_a_terminal_one_line_changes(folder: Path) -> None:
    """The terminal is a real one: a pseudo-terminal."""
    ours, theirs = pty.openpty()
    command = [PROGRAM, "run", "card_usage.py", "--mode", "local", "--until-caught-up"]
    with subprocess.Popen(
        command, cwd=folder, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the other end was closed: the program has ended
            pass
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    assert "new" in text and "stopped at checkpoint 1: 500 events" in text
    assert "\x1b[" in text, "control sequences redraw the line"


def test_python_job_py_runs_locally(folder: Path) -> None:
    (folder / "card_usage.py").write_text(
        JOB + '\nif __name__ == "__main__":\n    print(job.run(until_caught_up=True).events)\n'
    )
    answer = subprocess.run([sys.executable, "card_usage.py"], cwd=folder, capture_output=True, text=True, check=True)
    assert answer.stdout == "500\n"
    assert (folder / ".streamwork" / "card-usage").is_dir()


@pytest.mark.slow
@pytest.mark.spark
def test_python_job_py_runs_on_spark_by_importing_itself(folder: Path) -> None:
    call_it = 'print(job.run(mode="microbatch", until_caught_up=True).events)'
    (folder / "card_usage.py").write_text(JOB + f'\nif __name__ == "__main__":\n    {call_it}\n')
    answer = subprocess.run([sys.executable, "card_usage.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert answer.stdout == "500\n", answer.stderr


def test_help_names_every_command(tmp_path: Path) -> None:
    answer = call(tmp_path, "--help")
    for name in ("run", "status", "stop", "checkpoints", "doctor", "demo", "new", "dev", "log", "bench"):
        assert f"\n  {name} " in answer.stdout
