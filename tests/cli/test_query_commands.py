"""`streamwork serve`, `run --serve` and `query`: in processes, from files and from a server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from commands import ask, call, error
from query.query_jobs import by_shop, fold, sales, sales_job
from sample import run_job
from streamwork import JobFailed, StreamworkError, query
from streamwork.cli.demo import write_transactions

PROGRAM = Path(sys.executable).parent / "streamwork"
EVENTS = sales(range(0, 40_000, 97))
EXAMPLE = (Path(__file__).parents[2] / "examples" / "card_usage.py").read_text()


@contextmanager
def started(
    folder: Path, *arguments: str, sends: int = signal.SIGTERM
) -> Iterator[tuple[IO[str], subprocess.Popen[str]]]:
    process = subprocess.Popen([PROGRAM, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        try:
            yield process.stdout, process
        finally:
            process.send_signal(sends)
            process.communicate(timeout=120)
    assert process.returncode == 0


def test_a_run_serves_its_state(tmp_path: Path) -> None:
    """`run --serve`: a process of its own, which ends with the run; `query` asks it, and the files."""
    (tmp_path / "card_usage.py").write_text(EXAMPLE)
    write_transactions(tmp_path / "transactions.jsonl", 1_000, cards=10)
    with started(tmp_path, "run", "card_usage.py", "--mode", "local", "--serve", "0") as (output, _):
        wanted = re.compile(r".*serving card-usage at (http://127.0.0.1:\d+), bearer token in (.*)")
        while (found := wanted.match(line := output.readline())) is None:
            assert line
        url, token = found[1], Path(found[2]).read_text().strip()
        with query.connect(url, token) as state:
            while _transactions(state) < 1_000:
                time.sleep(0.01)
        one = ask("query", url, "per-card", "card-00003", "--token", token)
        assert one["committed"] and one["rows"][0]["key"] == {"card": "card-00003"}
        with query.connect(url, token) as state:
            component = state["per-card"]
    with pytest.raises(JobFailed, match="SW-QUERY-UNREACHABLE"):
        component.count()
    files = ask("query", "--root", str(tmp_path / ".streamwork"), "card-usage", "per-card", "card-00003")
    assert files["rows"] == one["rows"]


def _transactions(state: query.State) -> int:
    try:
        return sum(record.transactions for _, record in state["per-card"].scan())
    except StreamworkError as error:
        assert error.code in {"SW-QUERY-NO-STATE", "SW-QUERY-COMPONENT"}
        return 0


def count_of(state: query.State) -> int:
    """Waits until the server has read the job."""
    while True:
        try:
            return state["by-shop"].count().count
        except JobFailed as error:
            assert error.code == "SW-QUERY-NO-STATE"
            time.sleep(0.01)


def test_a_root_is_served_until_ctrl_c(tmp_path: Path) -> None:
    run_job(sales_job(EVENTS[:50], tmp_path), tmp_path / "root")
    arguments = ("serve", str(tmp_path / "root"), "--listen", "0", "--json", "--cache", str(tmp_path / "cache"))
    with started(tmp_path, *arguments, sends=signal.SIGINT) as (output, _):
        text = ""
        while not text.endswith("}\n"):
            text += output.readline()
        said: dict[str, Any] = json.loads(text)
        assert said["jobs"] == ["sales"]
        with query.connect(said["url"], Path(said["token"]).read_text().strip()) as state:
            assert count_of(state) == len(fold(EVENTS[:50], by_shop))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    path = tmp_path_factory.mktemp("asked")
    run_job(sales_job(EVENTS[:200], path), path / "root")
    return "query", "--root", str(path / "root"), "sales"


def test_questions_to_files(job: tuple[str, ...]) -> None:
    assert set(ask(*job)["components"]) == {"watching", "by-shop", "by-order"}
    assert ask(*job, "by-shop", "--count")["count"] == len(fold(EVENTS[:200], by_shop))
    found = ask(*job, "by-order", "--prefix", "shop-0", "--limit", "2")
    assert len(found["rows"]) == 2 and found["more"]
    assert ask(*job, "by-order", "shop-07", "2")["rows"][0]["record"]["count"] == 6
    assert {row["key"]["shop"] for row in ask(*job, "by-order", "shop-07")["rows"]} == {"shop-07"}
    between = ask(*job, "by-shop", "--from", "shop-01", "--to", "shop-04")
    assert [row["key"]["shop"] for row in between["rows"]] == ["shop-02", "shop-03"]
    older = ask(*job, "by-shop", "--count", "--at", "checkpoint:19")
    assert older["epoch"] == 19 and older["count"] == len(fold(EVENTS[:190], by_shop))
    code, text, _ = call(*job, "by-shop", "shop-02")
    assert code == 0 and "shop-02" in text and "1 row; checkpoint 20, committed" in text
    assert "checkpoint 20, committed" in call(*job, "by-shop", "--count")[1]
    assert "by-order" in call(*job)[1]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("none",), "SW-QUERY-COMPONENT"),
        (("by-order", "a", "b", "c"), "SW-QUERY-KEY"),
        (("by-order", "a", "b"), "SW-QUERY-KEY"),
        (("by-shop", "a", "--since", "2026-01-01"), "SW-QUERY-WINDOWS"),
        (("by-shop", "a", "--since", "yesterday"), "SW-USAGE"),
        (("by-shop", "--at", "somewhere"), "SW-QUERY-AT"),
    ],
)
def test_errors(job: tuple[str, ...], arguments: tuple[str, ...], code: str) -> None:
    assert error(*job, *arguments)["code"] == code


def test_addresses_that_are_none() -> None:
    assert error("query", "ftp://x")["code"] == "SW-QUERY-ADDRESS"
    code, out, _ = call("query", "http://127.0.0.1:1", "--json")
    assert code == 1 and "SW-QUERY-UNREACHABLE" in out
    assert error("serve", "nothing-here")["code"] == "SW-QUERY-JOB"
    assert error("serve", ".", "--listen", "x")["code"] == "SW-SERVE-PORT"
