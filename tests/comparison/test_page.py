"""The page about `compare`: its files, its commands and their output."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb

from commands import call_in

PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()


def blocks(language: str) -> list[str]:
    return [str(block) for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)]


def call(folder: Path, line: str) -> str:
    """A line of a `sh` block."""
    words = shlex.split(line, comments=True)
    if words[0] == "python":
        subprocess.run([sys.executable, *words[1:]], cwd=folder, check=True)
        return ""
    code, out, errors = call_in(folder, *words[1:])
    assert code == 0, (line, errors)
    return out


def shown(out: str) -> list[str]:
    """Without times and rates, and without white space at the ends of lines."""
    return [line.rstrip() for line in re.sub(r" \([\d.,]+ s, [\d,]+ events?/s\)", "", out).strip().splitlines()]


def test_the_page_says_what_the_commands_do(tmp_path: Path) -> None:
    for text in blocks("python"):
        (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
    prepare, compare, what_if = blocks("sh")
    for line in prepare.splitlines():
        call(tmp_path, line)
    (text,) = blocks("text")
    assert shown(call(tmp_path, compare)) == shown(text)
    call(tmp_path, what_if)
    amounts = {n: -30 if n % 500 == 499 else n * 37 % 130 for n in range(1000, 3000)}
    over = {limit: [n for n, amount in amounts.items() if amount > limit] for limit in (100, 120)}
    assert f"{len(over[100])} of A, {len(over[120])} of B" in PAGE
    (sql,) = blocks("sql")
    fewer = dict(duckdb.sql(sql.replace("'what-if/", f"'{tmp_path}/what-if/")).fetchall())
    expected = {
        f"card-{card:02d}": sum(100 < amounts[n] <= 120 for n in amounts if n % 20 == card) for card in range(20)
    }
    assert fewer == {card: count for card, count in expected.items() if count}
