"""Commands, called in this process: starting one for each would take most of the time of a test."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

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
