"""The log of a job: bounded, readable, without secrets, with the traceback of the task that failed."""

from __future__ import annotations

import io
import json
import logging
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commands import ask, call
from letter_jobs import squeamish_job
from sample import run_job
from streamwork import JobFailed
from streamwork.cli.demo import write_transactions
from streamwork.cli.entry_watcher import EntryWatcher
from streamwork.engine.report import Failure, Reports
from streamwork.epoch import Phase
from streamwork.errors import MOST_TRACE, StreamworkError
from streamwork.observe.job_log import follow_log, read_failure, read_log
from streamwork.run import job_log
from streamwork.run.job_log import Entry, JobLog, shown
from streamwork.testing.clock import VirtualClock

REPO = Path(__file__).parents[2]
PROGRAM = str(Path(sys.executable).parent / "streamwork")


def failed_job(folder: Path) -> Path:
    with pytest.raises(JobFailed):
        run_job(squeamish_job(folder, on_error="fail"), folder / "root")
    return folder / "root"


# ---- failures -------------------------------------------------------------------------------------------------------


def test_a_failure_has_the_traceback_of_the_operator(tmp_path: Path) -> None:
    root = failed_job(tmp_path)
    found = read_failure(root, "squeamish")
    assert found is not None
    assert (found.code, found.component, found.instance, found.epoch) == ("SW-OPERATOR-FAILED", "squeamish", 0, 1)
    assert "ValueError: cannot do 4" in found.traceback and "letter_jobs.py" in found.traceback
    assert "in apply" in found.traceback and found.action.startswith("fix the operator")
    code, text, _ = call("logs", "--root", root, "squeamish", "--errors")
    assert code == 0 and "in squeamish[0], epoch 1" in text and "ValueError: cannot do 4" in text
    (shown_entry,) = ask("logs", "--root", root, "squeamish", "--errors")["entries"]
    assert shown_entry["traceback"] == found.traceback


def test_control_without_a_failure_there_is_none(tmp_path: Path) -> None:
    run_job(squeamish_job(tmp_path), tmp_path / "root")
    assert read_failure(tmp_path / "root", "squeamish") is None
    messages = [one.message for one in read_log(tmp_path / "root", "squeamish").entries]
    assert messages[0] == "started (local) at checkpoint 0"
    assert any(message.startswith("checkpoint 1 completed, ") for message in messages)


def test_a_traceback_travels_from_a_worker_to_the_driver() -> None:
    """A report is JSON; the driver raises the error anew."""
    try:
        try:
            raise ValueError("in the worker \ud800")
        except ValueError as cause:
            raise JobFailed("SW-OPERATOR-FAILED", "it failed", "fix it", component="a") from cause
    except StreamworkError as error:
        error.raised_in, error.in_epoch = "a[3]", 7
        sent = Reports(failure=Failure.of(error)).to_json()
    failure = Reports.from_json(sent).failure
    assert failure is not None
    arrived = failure.to_error()
    assert (arrived.raised_in, arrived.in_epoch) == ("a[3]", 7)
    assert "ValueError: in the worker" in arrived.full_trace()


def test_a_long_traceback_keeps_its_end() -> None:
    error = JobFailed("SW-X", "cause", "action")
    error.trace = "x" * MOST_TRACE + "the end"
    assert len(error.full_trace()) == MOST_TRACE + 4 and error.full_trace().endswith("the end")


# ---- what is not shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("cannot connect to postgresql://jo:s3cret@db/x", "s3cret"),
        ("redis://:s3cret@host:6379", "s3cret"),
        ("connect(password='s3cret', user='jo')", "s3cret"),
        ('{"api_key": "s3cret"}', "s3cret"),
        ("GET /?token=s3cret&x=1", "s3cret"),
        ("Authorization: Bearer s3cret", "s3cret"),
    ],
)
def test_secrets_are_not_shown(text: str, secret: str, tmp_path: Path) -> None:
    assert secret in text and secret not in shown(text) and "***" in shown(text)
    log, entries = written(tmp_path)
    log.failed(ValueError(text), 1)
    log.note(text)
    assert len(entries) == 2 and all(secret not in (one.message + one.traceback) for one in entries)


def test_other_text_is_shown_as_it_is() -> None:
    for text in (
        "checkpoint 3 completed",
        "see http://127.0.0.1:80/x",
        "a@b.example",
        "12:30:01",
        "the token is missing",
    ):
        assert shown(text) == text


# ---- the file -------------------------------------------------------------------------------------------------------


def written(folder: Path) -> tuple[JobLog, list[Entry]]:
    entries: list[Entry] = []
    (folder / "root" / "j").mkdir(parents=True, exist_ok=True)
    return JobLog(folder / "root" / "j", "j", VirtualClock(), entries.append), entries


@pytest.fixture
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read logs of folders that are none of a job's."""

    class Folder:
        def __init__(self, root: Path, job: str) -> None:
            self.folder = root / job

    monkeypatch.setattr("streamwork.observe.job_log.open_store", Folder)


@pytest.mark.usefixtures("no_store")
def test_the_log_is_bounded_and_the_newest_lines_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "MOST_BYTES", 2_000)
    log, _ = written(tmp_path)
    log.started(1, "started")
    for number in range(300):
        log.note(f"line {number}")
    files = sorted((tmp_path / "root" / "j" / "logs").iterdir())
    assert [one.name for one in files] == ["job.1.jsonl", "job.2.jsonl", "job.3.jsonl", "job.jsonl"]
    assert all(one.stat().st_size < 2_200 for one in files)
    found = [one.message for one in read_log(tmp_path / "root", "j", last=20).entries]
    assert found == [f"line {number}" for number in range(280, 300)], "across files, oldest first"
    assert len(read_log(tmp_path / "root", "j", last=10_000).entries) < 150


@pytest.mark.usefixtures("no_store")
def test_a_standby_writes_nothing_until_it_has_the_job(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    log.note("waiting")
    assert not (tmp_path / "root" / "j" / "logs").exists()
    log.started(4, "started")
    assert [one.message for one in read_log(tmp_path / "root", "j").entries] == ["waiting", "started"]


def test_a_driver_that_has_not_claimed_the_job_writes_no_failure(tmp_path: Path) -> None:
    log, entries = written(tmp_path)
    log.failed(ValueError("another driver has the job"), 0)
    assert not (tmp_path / "root" / "j" / "logs").exists() and len(entries) == 1, "it is printed"


@pytest.mark.usefixtures("no_store")
def test_a_driver_that_has_lost_the_job_writes_nothing_any_more(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    log.started(4, "started")
    (tmp_path / "root" / "j" / "fences").mkdir()
    (tmp_path / "root" / "j" / "fences" / "5.json").touch()
    log.note("awake again")
    log.failed(ValueError("fenced"), 4)
    assert [one.message for one in read_log(tmp_path / "root", "j").entries] == ["started"]


@pytest.mark.usefixtures("no_store")
def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    log.started(1, "one")
    with (tmp_path / "root" / "j" / "logs" / "job.jsonl").open("ab") as file:
        file.write(b'{"half": \n\xff\xfe\n')
    log.note("two")
    assert [one.message for one in read_log(tmp_path / "root", "j").entries] == ["one", "two"]


@pytest.mark.usefixtures("no_store")
def test_new_lines_are_followed_across_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = written(tmp_path)
    log.started(1, "before")
    coming = follow_log(tmp_path / "root", "j", VirtualClock())
    assert next(coming) is None
    found: list[str] = []

    def take() -> None:
        while (one := next(coming)) is not None:
            found.append(one.message)

    log.note("a")
    take()
    log.note("b")
    monkeypatch.setattr(job_log, "MOST_BYTES", 1)
    log.note("c")
    take()
    assert found == ["a", "b", "c"]


def test_python_s_logging_is_in_the_log_and_warnings_are_still_printed(tmp_path: Path) -> None:
    log, entries = written(tmp_path)
    root = logging.getLogger()
    before = list(root.handlers)
    with log.of_python():
        try:
            raise KeyError("why")
        except KeyError:
            logging.getLogger("mine").exception("it failed, password=s3cret")
    assert root.handlers == before
    (entry,) = entries
    assert (entry.level, entry.logger, entry.message) == ("error", "mine", "it failed, password=***")
    assert "KeyError: 'why'" in entry.traceback


def test_control_characters_do_not_break_the_lines() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    EntryWatcher(stream).on_note("one\ntwo \x1b[31m \x9b31m ü")
    stream.seek(0)
    (line,) = stream.read().splitlines()
    assert line.isprintable() and json.loads(line)["message"] == "one\ntwo \x1b[31m \x9b31m ü"


def test_completed_checkpoints_are_printed_once_a_second_and_kept_once_a_minute(tmp_path: Path) -> None:
    clock, entries = VirtualClock(), list[Entry]()
    (tmp_path / "j").mkdir()
    log = JobLog(tmp_path / "j", "j", clock, entries.append)
    log.started(1, "started")
    manifest: Any = SimpleNamespace(events=5)
    for epoch in range(1, 1_201):
        log.on_phase(Phase.COMPLETE, epoch, manifest)
        clock.sleep(0.125)
    assert len(entries) == 1 + 150 and entries[-1].message == "checkpoint 1193 completed, 5,965 events so far"
    assert len((tmp_path / "j" / "logs" / "job.jsonl").read_bytes().splitlines()) == 1 + 3


# ---- commands -------------------------------------------------------------------------------------------------------


def test_the_commands_of_the_guide_work_as_written(tmp_path: Path) -> None:
    (tmp_path / "card_usage.py").write_text((REPO / "examples" / "card_usage.py").read_text())
    write_transactions(tmp_path / "transactions.jsonl", 100, cards=10)
    block = re.findall(r"```sh\n(.*?)```", (REPO / "docs" / "monitoring.md").read_text(), re.DOTALL)[0]
    commands = [[PROGRAM, *shlex.split(line)[1:]] for line in block.splitlines()]
    run, log, errors = (
        subprocess.run(one, cwd=tmp_path, capture_output=True, text=True, check=True).stdout for one in commands
    )
    lines: list[dict[str, Any]] = [json.loads(line) for line in run.splitlines()]
    assert all({"time", "level", "job", "message"} <= set(line) for line in lines)
    assert {line["job"] for line in lines} == {"card-usage"}
    assert [line["epoch"] for line in lines if "epoch" in line] == [1]
    assert "started (local) at checkpoint 0" in log and json.loads(errors)["entries"] == []


def test_a_failed_run_prints_json_lines_only(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from streamwork import Event, Job, ListSource\n"
        "class E(Event):\n    n: int\n"
        "def bad(event):\n    raise ValueError('no')\n"
        "job = Job('bad', checkpoint_every=0, restart=None)\n"
        "job.source(ListSource([E(1)], E), id='in').filter(bad, id='m').print()\n"
    )
    done = subprocess.run(
        [PROGRAM, "run", "bad.py", "--mode", "local", "--log-format", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (error,) = [line for line in lines if line["level"] == "error"]
    assert (
        error["code"] == "SW-OPERATOR-FAILED" and error["component"] == "m" and "ValueError: no" in error["traceback"]
    )
    assert "SW-OPERATOR-FAILED" in done.stderr, "the last word is for people"
