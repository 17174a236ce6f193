"""`streamwork console`, `run --console`, and the commands that print what its pages show."""

from __future__ import annotations

import http.client
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from cli.test_query_commands import EXAMPLE, started
from commands import ask, call, error
from query.query_jobs import sales, sales_job
from sample import run_job
from streamwork.cli.demo import write_transactions

EVENTS = sales(range(0, 4_000, 97))


def get(url: str, path: str, token: str) -> Any:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        assert response.status == 200
        return json.loads(response.read())
    finally:
        connection.close()


def test_a_run_shows_its_root(tmp_path: Path) -> None:
    """`run --console`: a process of its own, which ends with the run. The address that it prints opens it."""
    (tmp_path / "card_usage.py").write_text(EXAMPLE)
    write_transactions(tmp_path / "transactions.jsonl", 1_000, cards=10)
    with started(tmp_path, "run", "card_usage.py", "--mode", "local", "--console", "0") as (output, _):
        wanted = re.compile(r".*console of (.*) at (http://127\.0\.0\.1:\d+)/#token=(\S+)")
        while (found := wanted.match(line := output.readline())) is None:
            assert line
        root, url, token = found.groups()
        assert Path(root) == tmp_path / ".streamwork" and token == (Path(root) / "access.token").read_text().strip()
        while not [one for one in get(url, "/api/overview", token)["jobs"] if one["job"] == "card-usage"]:
            pass
        assert get(url, "/api", token)["actions"] is False
    with pytest.raises(OSError, match="refused"):
        get(url, "/api", token)


def test_a_console_until_ctrl_c(tmp_path: Path) -> None:
    run_job(sales_job(EVENTS, tmp_path), tmp_path / "root")
    arguments = ("console", str(tmp_path / "root"), "--listen", "0", "--allow-actions", "--json")
    with started(tmp_path, *arguments, sends=signal.SIGINT) as (output, _):
        text = ""
        while not text.endswith("}\n"):
            text += output.readline()
        said: dict[str, Any] = json.loads(text)
        secret = Path(said["token"]).read_text().strip()
        assert said["open"] == f"{said['url']}/#token={secret}" and said["actions"] is True
        assert [one["job"] for one in get(said["url"], "/api/overview", secret)["jobs"]] == ["sales"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("console", "nothing-here"), "SW-ROOT-EMPTY"),
        (("console", ".", "--listen", "x"), "SW-SERVE-PORT"),
        (("console", ".", "--jobfile", "job.py"), "SW-USAGE"),
    ],
)
def test_errors(arguments: tuple[str, ...], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert error(*arguments)["code"] == code


def test_what_pages_show_in_a_terminal(tmp_path: Path) -> None:
    root = tmp_path / "root"
    newest = run_job(sales_job(EVENTS, tmp_path, 2), root).checkpoint
    about = ("--root", root, "sales")
    code, text, _ = call("status", root)
    assert code == 0 and "1 job" in text and "sales" in text and "does not run" in text
    code, text, _ = call("status", *about, "--graph")
    assert code == 0 and "by-order" in text and "reads from" in text
    code, text, _ = call("history", *about)
    assert code == 0 and "lag (events)" in text
    code, text, _ = call("history", *about, "--epochs", 2)
    assert code == 0 and "completed" in text and f"--before {(newest or 0) - 1}" in text
    code, text, _ = call("checkpoints", *about, "--show", newest)
    assert code == 0 and "state/by-shop/0/" in text and "processed" in text
    assert error("checkpoints", *about, "--show", 999)["code"] == "SW-EPOCH-UNKNOWN"
    assert error("checkpoints", *about, "--show", 1, "--verify")["code"] == "SW-USAGE"
    assert error("history", *about, "--before", 1)["code"] == "SW-USAGE"
    assert error("status", root, "--graph")["code"] == "SW-USAGE"
    assert ask("status", tmp_path)["jobs"] == []
