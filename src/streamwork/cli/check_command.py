"""``streamwork check``: does a job fit a checkpoint or savepoint? Exit code 3: a start from there would be refused."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from streamwork.cli.job_arguments import AS, load_as_it_ran, with_job_file
from streamwork.cli.job_commands import WIDTH
from streamwork.cli.output import JSON, cell, console, print_json, say
from streamwork.epoch import Store
from streamwork.job.jobfile import load_job
from streamwork.run.checking import Checked, check
from streamwork.world import RealClock, RealDisk


@click.command("check")
@with_job_file
@click.option(
    "--against",
    metavar="savepoint:NAME | checkpoint:N | PATH",
    help="What the job is compared with  [default: its newest checkpoint]",
)
@click.option(
    "--drop-state", "drops", multiple=True, metavar="ID", help="As the start would be given. May be repeated."
)
@AS
@JSON
def check_command(
    job: str, root: Path | None, against: str | None, drops: tuple[str, ...], fork: str | None, as_json: bool
) -> None:
    """Compare a job with a checkpoint or savepoint, component by component, before it is started. Nothing is written."""
    loaded = load_job(job)
    place = (root or loaded.default_root).absolute()
    if fork is not None or Store(RealDisk(), place, loaded.job.name).identity() is not None:
        loaded, place = load_as_it_ran(job, root, fork)
    found = check(loaded.job, Store(RealDisk(), place, loaded.job.name), against, drops, RealClock())
    if as_json:
        print_json(found)
    else:
        _show(found)
    if not found.fits:
        raise SystemExit(3)


def _show(found: Checked) -> None:
    say(f"job {found.job}, root {found.root}: " + (found.against or "nothing is stored yet"))
    table = Table("component", "what", "change", "details", box=None)
    for one in found.components:
        table.add_row(cell(one.component), one.kind, one.change.value, cell("; ".join(one.details)))
    console(width=max(WIDTH, console().width)).print(table)
    for reason in found.reasons:
        say(f"{reason.code} {reason.cause}")
        say(f"  what to do: {reason.action}")
    if found.fits:
        then = "it writes one checkpoint with the changes before it reads any input" if found.rewrites else "as it is"
        say(f"the job fits: a start goes on, {then}" if found.against else "the job begins")
