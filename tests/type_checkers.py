"""mypy and pyright as a user runs them: strict, with no settings of this repository, without network.

Pyright is its fork basedpyright, whose wheel holds the program and whose dependency holds node: the package `pyright` would
download both at run time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

Findings = dict[str, dict[int, str]]  # file -> line -> what is wrong there
Checker = Callable[[Path], Findings]


def write(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def mypy(folder: Path) -> Findings:
    """What ``mypy --strict`` reports about the Python files of a folder."""
    options = ["--strict", "--config-file", "", "--show-absolute-path", "--hide-error-context", "--no-pretty"]
    ran = _run(folder, "mypy", *options, *(file.name for file in sorted(folder.glob("*.py"))))
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found: Findings = {}
    for line in ran.stdout.splitlines():
        if matched := re.match(r"(.+?):(\d+): error: (.*)", line):
            found.setdefault(Path(matched[1]).name, {})[int(matched[2])] = matched[3]
    assert bool(found) == bool(ran.returncode), ran.stdout + ran.stderr
    return found


def pyright(folder: Path) -> Findings:
    """What pyright reports about the Python files of a folder, in its strict mode."""
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": ["**/*.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    ran = _run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    answer = json.loads(ran.stdout)
    assert answer["summary"]["filesAnalyzed"] == len(list(folder.rglob("*.py"))), answer["summary"]
    found: Findings = {}
    for one in answer["generalDiagnostics"]:
        if one["severity"] in ("error", "warning"):
            found.setdefault(Path(one["file"]).name, {})[one["range"]["start"]["line"] + 1] = one["message"]
    return found


def _run(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", program, *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
