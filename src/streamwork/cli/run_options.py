"""The options of ``streamwork run`` and ``streamwork dev``, made from `RunOptions`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import click

from streamwork.run.mode import Mode
from streamwork.run.options import Flag, RunOptions, defaults, flags

Command = Callable[..., None]


def run_options(*names: str) -> Callable[[Command], Command]:
    """Give a command these run options; all of them, if none is named. Each is a parameter named like its field."""

    def decorate(command: Command) -> Command:
        for name, flag in reversed(flags().items()):
            if not names or name in names:
                command = _option(name, flag)(command)
        return command

    return decorate


def _option(name: str, flag: Flag) -> Callable[[Command], Command]:
    kind, default = get_type_hints(RunOptions)[name], defaults().get(name)
    shown: dict[str, Any] = {"help": flag.help, "metavar": flag.metavar, "hidden": flag.hidden}
    if kind is bool:
        return click.option(flag.name, name, is_flag=True, flag_value=not flag.negated, default=default, **shown)
    if isinstance(default, tuple | dict):
        return click.option(flag.name, name, multiple=True, **shown)
    if flag.choices:
        shown["type"] = click.Choice(flag.choices)
    elif kind is Path:
        shown["type"] = click.Path(path_type=Path)
    elif kind == int | None:
        shown["type"] = int
    text = default.value if isinstance(default, Mode) else default
    return click.option(flag.name, name, default=text, show_default=bool(text), **shown)
