"""The poison event: the job stops and prints the command that sets it aside; that command works as printed."""

from __future__ import annotations

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commands import ask, call
from letter_jobs import POISON, check, squeamish_job
from sample import Doubling, Payment, payments, run_job
from streamwork import Backoff, Job, JobFailed, JsonLines, ListSource, Operator, SqliteSink, WrongUse
from streamwork.run.on_error import advise, with_on_error

JOB = """
from pathlib import Path
from letter_jobs import squeamish_job
from streamwork import Backoff

job = squeamish_job(Path(__file__).parent, on_error=None, restart=Backoff(first="10ms"))
"""
GO_ON = "and continue: "


@pytest.mark.slow(mode="microbatch")
def test_the_command_that_is_printed_goes_on(tmp_path: Path, mode: str) -> None:
    jobfile = tmp_path / f"{tmp_path.name}.py"
    jobfile.write_text(JOB)
    run = ["run", str(jobfile), "--mode", mode, "--until-caught-up", "--json"]
    code, out, _ = call(*run)
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (1, "SW-OPERATOR-FAILED")
    assert "squeamish (instance 0)" in error["cause"] and "amount=4" in error["cause"], "component and event"
    epoch = "" if mode == "live" else "epoch 2"  # where epochs are cut is a matter of time there
    assert f"{epoch}]; it happened again right after a restart" in error["cause"]
    printed = error["action"].partition(GO_ON)[2]
    assert shlex.split(printed) == ["streamwork", *run, "--on-error", "squeamish=dead-letter"]
    assert call(*shlex.split(printed)[1:])[0] == 0
    check(tmp_path, without=POISON)
    assert ask("dead-letters", "list", jobfile)["count"] == len(POISON)
    (tmp_path / "mended").touch()
    ask("dead-letters", "replay", jobfile, "--all")
    assert call(*run)[0] == 0
    check(tmp_path)


ILL_TYPED = """
from delivery.ill_typed_jobs import spoiling_job
from pathlib import Path

job = spoiling_job(Path(__file__).parent)
"""


@pytest.mark.slow(mode="microbatch")
def test_so_does_that_for_output_and_state_that_do_not_fit(tmp_path: Path, mode: str) -> None:
    """Each in its turn; which is found first depends on whether the exchange between them is in one process."""
    jobfile = tmp_path / f"{tmp_path.name}.py"
    jobfile.write_text(ILL_TYPED)
    command = ["run", str(jobfile), "--mode", mode, "--until-caught-up", "--json"]
    for _ in range(2):
        code, out, _ = call(*command)
        error = json.loads(out)["error"]
        assert (code, error["code"]) == (1, "SW-TYPE-VALUE")
        printed = shlex.split(error["action"].partition(GO_ON)[2])
        assert printed[:-1] == ["streamwork", *command, "--on-error"]
        command = printed[1:]
    assert call(*command)[0] == 0
    letters = ask("dead-letters", "list", jobfile)["dead_letters"]
    assert sorted((one["component"], one["error"].partition(":")[0]) for one in letters) == [
        ("emitting", "SW-TYPE-VALUE"),
        ("keeping", "SW-TYPE-VALUE"),
    ]
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert [n for (n,) in db.execute("SELECT amount FROM out ORDER BY amount")] == [1, 2, 4, 5, 7]


def test_a_source_and_a_sink_may_set_things_aside_too(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"card": "a", "amount": 1}\n{"card": "a"}\n{"card": "a", "amount": 3}\n')
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        db.execute("CREATE TABLE out (card TEXT, amount INTEGER, CHECK (amount <> 3))")
    job = Job("lines", checkpoint_every=0)
    source = job.source(JsonLines(tmp_path / "lines.jsonl", Payment), id="payments")
    source.sink(SqliteSink(tmp_path / "out.db", "out"), id="out")

    def stopped(code: str, **chosen: str) -> str:
        with pytest.raises(JobFailed, match=code) as stopped:
            run_job(job, tmp_path / "root", command=("streamwork", "run", "my job.py"), on_error=chosen)
        return stopped.value.action.partition(GO_ON)[2]

    assert stopped("SW-SOURCE-BAD-EVENT") == "streamwork run 'my job.py' --on-error payments=dead-letter"
    assert stopped("SW-SINK-REJECTED", payments="drop") == "streamwork run 'my job.py' --on-error out=dead-letter"
    assert run_job(job, tmp_path / "root", on_error={"payments": "drop", "out": "drop"}).dropped == 1
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("SELECT amount FROM out").fetchall() == [(1,)]


@pytest.mark.parametrize("settings", [{"semantics": "at-least-once"}, {"semantics": "exactly-once"}])
def test_a_run_from_python_says_it_in_its_own_words(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(JobFailed) as stopped:
        run_job(squeamish_job(tmp_path, on_error="fail", **settings), tmp_path / "root")
    assert stopped.value.action.endswith('and continue: give squeamish on_error="dead-letter", and start again')


def test_what_no_policy_would_help_against_is_left_as_it_is() -> None:
    error = JobFailed("SW-SPARK-FAILED", "cause", "action")
    advise(error, ("streamwork",))
    assert error.action == "action"
    error = JobFailed("SW-OPERATOR-FAILED", "a timer raised", "action")
    advise(error, ("streamwork",))
    assert error.action == "action"


def test_wrong_use() -> None:
    class Whole(Operator[Payment, Payment]):
        def apply_batch(self, batch: Any, collector: Any) -> None: ...

    job = Job("some", restart=Backoff())
    source = job.source(ListSource(payments(3), Payment), id="payments")
    source.apply(Doubling(), id="doubled").apply(Whole(), id="whole").print()
    graph = job.graph()
    with pytest.raises(WrongUse, match="which job some does not have"):
        with_on_error(graph, {"tripled": "drop"})
    with pytest.raises(WrongUse, match="on_error='perhaps' is not known"):
        with_on_error(graph, {"doubled": "perhaps"})
    with pytest.raises(WrongUse, match="SW-OPERATOR-BATCH"):
        with_on_error(graph, {"whole": "drop"})
    assert with_on_error(graph, {}) is graph
    assert with_on_error(graph, {"payments": "drop"})["payments"].component.on_error == "drop"
    assert graph["payments"].component.on_error == "fail"
