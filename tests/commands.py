"""Commands, called in this process: starting one for each would take most of the time of a test."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from streamwork.__main__ import main


def call(*arguments: object) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), errors.getvalue()


@contextmanager
def standing_in(folder: Path, **environment: str) -> Iterator[None]:
    """Like a new process in this folder: no job file was imported before, and none that is imported now stays."""
    here, modules, path = Path.cwd(), dict(sys.modules), list(sys.path)
    writes, sys.dont_write_bytecode = (
        sys.dont_write_bytecode,
        True,
    )  # a file that changes twice a second has one bytecode
    elsewhere = {str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parent)}
    sys.path[:] = [entry for entry in path if entry not in elsewhere]
    for name in {file.stem for file in folder.glob("*.py")} & modules.keys() - sys.stdlib_module_names:
        del sys.modules[name]
    os.chdir(folder)
    try:
        with patch.dict(os.environ, environment):
            yield
    finally:
        sys.dont_write_bytecode = writes
        os.chdir(here)
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(f"{folder}{os.sep}"):
                del sys.modules[name]
        sys.modules.update({name: module for name, module in modules.items() if name not in sys.modules})


def call_in(folder: Path, *arguments: object, **environment: str) -> tuple[int, str, str]:
    """`call`, in a folder with a job file."""
    with standing_in(folder, **environment):
        return call(*arguments)


def ask(*arguments: object) -> dict[str, Any]:
    """What a command answers that succeeds."""
    code, out, _ = call(*arguments, "--json")
    assert code == 0, out
    found: dict[str, Any] = json.loads(out)
    return found


def error(*arguments: object) -> dict[str, str]:
    """What a command says that is refused."""
    code, out, _ = call(*arguments, "--json")
    assert code in (2, 3), out
    found: dict[str, str] = json.loads(out)["error"]
    return found
