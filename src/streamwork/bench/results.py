"""The files written by `streamwork bench NAME --save FOLDER`: figures, kind of machine, date."""

from __future__ import annotations

import os
import platform
import re
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import msgspec

import streamwork
from streamwork.errors import WrongUse

SAVE_TO = "streamwork.bench.save"
"""Where the context of a command keeps the folder that `--save` names."""


class Machine(msgspec.Struct, frozen=True):
    """The kind of machine, without anything that identifies it or its owner."""

    cores: int
    os: str
    python: str
    pyspark: str
    streamwork: str

    def __str__(self) -> str:
        return (
            f"{self.cores} cores, {self.os}, Python {self.python}, pyspark {self.pyspark}, streamwork {self.streamwork}"
        )


class Result(msgspec.Struct, frozen=True):
    """The result of one run of a benchmark. `numbers` is its output with --json."""

    bench: str
    command: str
    date: date
    machine: Machine
    numbers: dict[str, Any]
    note: str = ""  # a remark about this run


def this_machine() -> Machine:
    return Machine(
        os.cpu_count() or 0,
        f"{platform.system()} {platform.machine()}",
        platform.python_version(),
        version("pyspark"),
        streamwork.__version__,
    )


def save(folder: Path, result: Result) -> Path:
    """Write FOLDER/NAME.json, replacing an older one."""
    path = folder / f"{result.bench}.json"
    path.write_bytes(
        msgspec.json.format(msgspec.json.encode(_without_paths(msgspec.to_builtins(result))), indent=2) + b"\n"
    )
    return path


def load(folder: Path) -> dict[str, Result]:
    """All results in a folder, by the name of their benchmark."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = msgspec.json.decode(path.read_bytes(), type=Result)
        except msgspec.DecodeError as error:
            raise WrongUse(
                "SW-USAGE",
                f"{path.name} is no result: {error}",
                f"make it with: streamwork bench {path.stem} --save {folder}",
            ) from error
        found[result.bench] = result
    return found


def _without_paths(value: Any) -> Any:
    """The figures without file names of this machine, which reasons for missing peers may contain."""
    if isinstance(value, dict):
        return {name: _without_paths(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value]
    return re.sub(r"(?<!\S)['\"(\[]*(?:~|/[^\s/]+)(?:/[^\s/]+)+", "...", value) if isinstance(value, str) else value


# ---- the option ---------------------------------------------------------------------------------------------------------


def _remember(context: click.Context, parameter: click.Parameter, folder: Path | None) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)  # now: a benchmark takes its time, and is not to fail in the end
        context.meta[SAVE_TO] = folder


SAVE = click.option(
    "--save",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    expose_value=False,
    callback=_remember,
    help="Also write the numbers to FOLDER/NAME.json, with date and machine, for `streamwork bench page`.",
)


def save_if_asked(numbers: dict[str, Any], command: str = "") -> Path | None:
    """Save the figures of a command that was given --save. `command`, if it is not the name alone, makes a result of its own:
    "recovery --standby" is saved as `recovery-standby`, "ysb --variant log" as `ysb-log`, "interval --mode live" as
    `interval-live`.
    """
    context = click.get_current_context()
    folder: Path | None = context.meta.get(SAVE_TO)
    if folder is None:
        return None
    if context.params.get("quick"):
        raise click.UsageError("--quick only shows that a benchmark works: its numbers are not saved", context)
    command = command or context.info_name or ""
    plain = msgspec.to_builtins(numbers, str_keys=True)
    name = command.replace(" --variant ", "-").replace(" --mode ", "-").replace(" --", "-")
    return save(folder, Result(name, f"streamwork bench {command}", date.today(), this_machine(), plain))
