"""docs/queryable-state.md: its examples run, its commands work, and its requests are answered."""

from __future__ import annotations

import http.client
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from commands import call_in
from query.serving_world import SECRET, Served, serving
from streamwork.cli.demo import write_transactions
from streamwork.query.server.openapi import document

REPO = Path(__file__).parents[2]
PAGE = (REPO / "docs" / "queryable-state.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "card_usage.py").write_text((REPO / "examples" / "card_usage.py").read_text())
    write_transactions(tmp_path / "transactions.jsonl", 2_000, cards=50)
    code, _, errors = call_in(tmp_path, "run", "card_usage.py", "--mode", "local", "--until-caught-up")
    assert code == 0, errors
    for line in blocks("sh")[0].splitlines():
        code, out, errors = call_in(tmp_path, *shlex.split(line)[1:])
        assert code == 0 and out, errors
    with serving(tmp_path / ".streamwork", "card-usage") as served:
        served.follow(1, "card-usage")
        (tmp_path / ".streamwork" / "access.token").write_text(SECRET)
        for line in blocks("sh")[2].splitlines():
            assert curl(served, line) == 200, line
        code = "\n".join(blocks("python")).replace("127.0.0.1:8700", f"127.0.0.1:{served.port}")
        (tmp_path / "example.py").write_text(code)
        done = subprocess.run(
            [sys.executable, "-W", "error", "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def curl(served: Served, line: str) -> int:
    """The status of what a curl command requests."""
    words = shlex.split(line.replace("$(cat .streamwork/access.token)", SECRET))
    url = next(word for word in words if word.startswith("http"))
    name, _, value = words[words.index("-H") + 1].partition(": ")
    body = words[words.index("-d") + 1] if "-d" in words else None
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    connection.request("GET" if body is None else "POST", path, body, {name: value})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def test_every_route_is_on_the_page() -> None:
    paths = re.findall(r"(?:GET|POST) (/[^`]*)`", PAGE)
    named = {path.replace("COMPONENT", "{component}").replace("KEY", "{key}") for path in paths}
    assert set(document()["paths"]) | {"/openapi.json"} == named - {"/watch/{component}"}
