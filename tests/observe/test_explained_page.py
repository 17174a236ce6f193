"""docs/how-a-checkpoint-works.md: its commands print what the page shows, and its example runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from commands import call, call_in

PAGE = (Path(__file__).parents[2] / "docs" / "how-a-checkpoint-works.md").read_text()


def blocks(language: str) -> list[str]:
    return [str(block) for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)]


def plain(text: str, folder: Path | None = None) -> list[str]:
    """Without what differs from run to run: sizes, hashes, times, the names of attempts."""
    if folder is not None:
        text = text.replace(str(folder), "/home/you")
    for pattern, instead in (
        (r"[\d,]+ bytes", "N bytes"),
        (r"(sha256|manifest) [0-9a-f]{12}", r"\1 H"),
        (r"\d\d:\d\d:\d\d\.\d{3}", "TIME"),
        (r" \([\d,]+ ms\)", ""),
        (r"-[0-9a-f]{8}([-.])", r"-ATTEMPT\1"),
    ):
        text = re.sub(pattern, instead, text)
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    explained, played = blocks("text")
    out = ""
    for line in blocks("sh")[0].splitlines():
        code, out, errors = call_in(tmp_path, *shlex.split(line, comments=True)[1:])
        assert code == 0, errors
    assert plain(out, tmp_path) == plain(explained)
    (line,) = blocks("sh")[1].splitlines()
    _, out, _ = call(*shlex.split(line)[1:])
    assert "\n".join(plain(played)) in "\n".join(plain(out))


def test_a_crash_is_where_the_page_says() -> None:
    lines = [shlex.split(line, comments=True)[1:] for line in blocks("sh")[2].splitlines()]
    for words, before in zip(lines, ("block", "prepare"), strict=True):
        frames = json.loads(call(*words, "--json")[1])["frames"]
        (crash,) = [frame["number"] for frame in frames if frame["kind"] == "crash"]
        assert frames[crash - 1]["kind"] == before


def test_the_example_runs(tmp_path: Path) -> None:
    (code,) = blocks("python")
    (tmp_path / "example.py").write_text(code)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0 and ran.stdout.startswith("Checkpoint event 1 comes to"), ran.stderr


@pytest.mark.parametrize("given", [(), ("job.py", "--simulate", "1"), ("job.py", "--crash-at", "3")])
def test_other_uses_are_refused(given: tuple[str, ...]) -> None:
    code, _, errors = call("explain", *given)
    assert code == 2 and "either a job, or --simulate" in errors
