"""The commands about a job that has run: status, stop, checkpoints.

Errors are raised as they are; `cli.main` turns them into text or JSON and an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Table

from streamwork.cli.output import JSON, console, print_json, say
from streamwork.epoch.history.history import Seconds
from streamwork.errors import WrongUse
from streamwork.job.duration import seconds
from streamwork.job.jobfile import load_job
from streamwork.observe.checkpoints import MEND, list_checkpoints
from streamwork.observe.status import lines, look, stop
from streamwork.world import RealClock

STEPS = Seconds.__struct_fields__
WIDTH = 130


def about_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """JOBFILE[:NAME], or --root ROOT JOB."""
    root = click.option("--root", type=click.Path(path_type=Path), help="The root; JOB is then the job's name.")
    return click.argument("job", metavar="JOBFILE[:NAME] | JOB")(root(command))


def find(job: str, root: Path | None) -> tuple[Path, str]:
    """The root and the name that a command is about. The job file is only imported where one is named."""
    if root is None or Path(job.partition(":")[0]).is_file():
        loaded = load_job(job)
        return (root or loaded.default_root).absolute(), loaded.job.name
    return root.absolute(), job


@click.command("status")
@about_a_job
@click.option("--prometheus", is_flag=True, help="Print the counts as metrics for Prometheus.")
@JSON
def status_command(job: str, root: Path | None, prometheus: bool, as_json: bool) -> None:
    """Show who runs a job, whether it is alive, how far it is, and what was counted."""
    if prometheus:
        if as_json:
            raise WrongUse("SW-USAGE", "--prometheus and --json are two formats", "use one of them")
        from streamwork.observe.metrics import exposition

        say(exposition(*find(job, root), RealClock()).decode().removesuffix("\n"))
        return
    status = look(*find(job, root), RealClock())
    if as_json:
        print_json(status)
    else:
        for line in lines(status):
            say(line)


@click.command("stop")
@about_a_job
@click.option("--timeout", default="60s", show_default=True, metavar="DURATION", help="How long to wait for its end.")
@JSON
def stop_command(job: str, root: Path | None, timeout: str, as_json: bool) -> None:
    """Ask a running job to end after the checkpoint under way, and wait until it has."""
    stopped = stop(*find(job, root), seconds(timeout), RealClock(), lambda line: say(line, err=True))
    if as_json:
        print_json(stopped)
    else:
        say(f"{stopped.text}; the last checkpoint is {stopped.checkpoint}")


@click.command("checkpoints")
@about_a_job
@click.option(
    "--verify", is_flag=True, help="Compare every file of every checkpoint with its hash. Exit code 1: damage."
)
@JSON
def checkpoints_command(job: str, root: Path | None, verify: bool, as_json: bool) -> None:
    """List the checkpoints of a job, newest first."""
    root, name = find(job, root)
    rows = list_checkpoints(root, name, RealClock(), verify)
    damaged = [row for row in rows if "problems" in row]
    if as_json:
        verdict = {"ok": not damaged} if verify else {}
        print_json({"job": name, "root": str(root), **verdict, "checkpoints": rows})
    else:
        say(f"job {name}, root {root}")
        _show(rows)
        for row in damaged:
            say("\n".join(f"\ncheckpoint {row['checkpoint']}: {problem}" for problem in row["problems"]))
        if damaged:
            say(f"  what to do: {MEND}")
        elif verify:
            say("every file of every checkpoint is whole")
    sys.exit(1 if verify and damaged else 0)


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table("checkpoint", "state", "age", "events", "keys", "bytes", *STEPS, "fence", box=None)
    for row in rows:
        steps = msgspec.to_builtins(row.get("seconds", Seconds()))
        table.add_row(
            str(row["checkpoint"]),
            row["state"],
            "" if row["age_seconds"] is None else f"{row['age_seconds']:,.0f} s",
            *(f"{row[name]:,}" if name in row else "" for name in ("events", "keys", "state_bytes")),
            *("" if steps[name] is None else f"{steps[name] * 1000:,.0f} ms" for name in STEPS),
            str(row.get("fence", "")),
        )
    # What does not fit is better wrapped by the terminal than cut off here.
    console(width=max(WIDTH, console().width)).print(table)
