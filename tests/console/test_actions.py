"""Actions: refused unless the console was started for them; allowed, each does what its command does."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from console.console_world import showing
from letter_jobs import POISON, check, squeamish_job
from query.query_jobs import sales, sales_job
from sample import Payment, Summing, run_job
from streamwork import EventLog, Job, LogSource, SqliteSink
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run
from waiting import wait_for

JOB = """
from pathlib import Path
from letter_jobs import squeamish_job

job = squeamish_job(Path(__file__).parent, parallelism=2)
"""
ACTIONS = {
    "stop": {},
    "savepoints": {"name": "one"},
    "dead-letters/replay": {"all": True},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console")
    run_job(sales_job(sales(range(0, 2_000, 97)), path), path / "root")
    return path / "root"


def every_file(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_console_only_shows_unless_told_otherwise(root: Path, action: str) -> None:
    before = every_file(root)
    with showing(root) as served:
        assert served.get("/api")["actions"] is False
        path = f"/api/jobs/sales/{action}"
        answer = served.ask(path, "POST", ACTIONS[action])
        assert (answer.status, answer.code) == (403, "SW-CONSOLE-READ-ONLY")
        assert "--allow-actions" in answer.json["error"]["action"]
        answer = served.ask(path, "POST", ACTIONS[action], None, Cookie=served.cookie(), Origin=served.url)
        assert (answer.status, answer.code) == (403, "SW-CONSOLE-READ-ONLY")
    assert every_file(root) == before


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_needs_token_and_origin(root: Path, action: str) -> None:
    before = every_file(root)
    with showing(root, allow_actions=True) as served:
        path, body, cookie = f"/api/jobs/sales/{action}", ACTIONS[action], served.cookie()
        assert served.ask(path, "POST", body, None).code == "SW-SERVE-TOKEN"
        assert served.ask(path, "POST", body, "wrong").code == "SW-SERVE-TOKEN"
        assert served.ask(path, "POST", body, None, Cookie=cookie).code == "SW-SERVE-HOST"
        for origin in ("http://evil.example", "null", f"http://localhost:{served.port}"):
            assert served.ask(path, "POST", body, None, Cookie=cookie, Origin=origin).code == "SW-SERVE-HOST"
        assert served.ask(path.replace("sales", "none"), "POST", body).code == "SW-QUERY-JOB"
        assert served.ask(path.replace("sales", "%2e%2e"), "POST", body).code == "SW-QUERY-JOB"
        for malformed in (b"{", b"[]", b'{"other": 1}'):
            assert served.ask(path, "POST", malformed).code == "SW-SERVE-REQUEST"
    assert every_file(root) == before


def test_stopping_a_job_at_rest_says_so(root: Path) -> None:
    with showing(root, allow_actions=True) as served:
        answer = served.ask("/api/jobs/sales/stop", "POST", {}, None, Cookie=served.cookie(), Origin=served.url)
        assert answer.status == 200 and answer.json["was_running"] is False
        assert served.ask("/api/jobs/sales/stop", "POST", {"timeout": "2h"}).code == "SW-SERVE-REQUEST"


def test_what_needs_the_code_of_a_job_says_so(root: Path) -> None:
    with showing(root, allow_actions=True) as served:
        for path, body in (("savepoints", {"name": "one"}), ("dead-letters/replay", {"all": True})):
            answer = served.ask(f"/api/jobs/sales/{path}", "POST", body)
            assert (answer.status, answer.code) == (409, "SW-CONSOLE-JOBFILE")
            assert "streamwork" in answer.json["error"]["action"] and "--jobfile" in answer.json["error"]["action"]
        for body in ({}, {"ids": ["a"], "all": True}, {"ids": [], "component": "by-shop"}, {"ids": [1]}):
            assert served.ask("/api/jobs/sales/dead-letters/replay", "POST", body).code == "SW-SERVE-REQUEST"
        assert (
            served.ask("/api/jobs/sales/dead-letters/replay", "POST", {"ids": ["a/1/0-1"]}).code == "SW-LETTERS-UNKNOWN"
        )
        assert served.ask("/api/jobs/sales/savepoints", "POST", {"name": "../up"}).code == "SW-JOB-NAME"


def test_dead_letters_are_replayed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that imports the job file."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    file = tmp_path / f"{tmp_path.name}.py"
    file.write_text(JOB)
    root = tmp_path / ".streamwork"
    run_job(squeamish_job(tmp_path, parallelism=2), root)
    check(tmp_path, without=POISON)
    (tmp_path / "mended").touch()
    with showing(root, allow_actions=True, job_files=[str(file)]) as served:
        path = "/api/jobs/squeamish/dead-letters"
        letters = [one["id"] for one in served.get(path)["dead_letters"]]
        replayed = served.ask(f"{path}/replay", "POST", {"ids": letters[:1]})
        assert replayed.status == 200 and replayed.json["letters"] == letters[:1]
        again = served.ask(f"{path}/replay", "POST", {"ids": letters[:1]})
        assert (again.status, again.code) == (409, "SW-LETTERS-REPLAYED")
        rest = served.ask(f"{path}/replay", "POST", {"all": True, "component": "squeamish"})
        assert sorted(rest.json["letters"]) == sorted(letters[1:])
        assert served.get(path)["replayed"] == len(letters)
    run_job(squeamish_job(tmp_path, parallelism=2), root)
    check(tmp_path)


def test_a_running_job_makes_a_savepoint_and_stops(tmp_path: Path) -> None:
    """In this process, in a thread; the console asks it by files, as it would ask any process."""
    with EventLog.create(tmp_path / "in", Payment) as log:
        log.append([Payment("card-1", 5)])
    root = tmp_path / "root"
    job = Job("running", checkpoint_every="20ms")
    source = job.source(LogSource(tmp_path / "in", Payment), id="payments")
    source.apply(Summing(), key="card", id="sums").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    thread = threading.Thread(target=run, args=(job, RunOptions(mode=Mode("local"), root=root)), daemon=True)
    thread.start()
    with showing(root, allow_actions=True) as served:
        wait_for(lambda: any(one["running"] and one["checkpoint"] for one in served.get("/api/overview")["jobs"]))
        made = served.ask("/api/jobs/running/savepoints", "POST", {"name": "one", "note": "<b>"})
        assert made.status == 200 and made.json["was_running"] and made.json["note"] == "<b>"
        assert served.ask("/api/jobs/running/savepoints", "POST", {"name": "one"}).status == 409
        assert [one["name"] for one in served.get("/api/jobs/running/savepoints")["savepoints"]] == ["one"]
        stopped = served.ask(
            "/api/jobs/running/stop", "POST", {"drain": True}, None, Cookie=served.cookie(), Origin=served.url
        )
        assert stopped.status == 200 and stopped.json["was_running"] and stopped.json["text"] == "stopped"
        thread.join(120)
        assert not thread.is_alive() and not served.get("/api/jobs/running")["status"]["running"]
