"""The commands for a new machine and a new job: doctor, demo, new, dev.

Errors are raised as they are; `cli.main` turns them into text or JSON and an exit code.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from streamwork.cli.demo import run_demo, show_results
from streamwork.cli.dev import develop
from streamwork.cli.doctor import Finding, examine
from streamwork.cli.network.command import network_command
from streamwork.cli.new import create
from streamwork.cli.output import JSON, cell, console, print_json, say
from streamwork.cli.progress import watched
from streamwork.cli.run_options import run_options
from streamwork.hosts.archive import prepare as prepare_archive
from streamwork.run.mode import Mode
from streamwork.world import RealClock


@click.command("new")
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), help="The folder to create  [default: NAME]")
@JSON
def new_command(name: str, folder: Path | None, as_json: bool) -> None:
    """Create a folder with a small job, its input and its test."""
    created = create(name, Path(name if folder is None else folder).absolute())
    if as_json:
        print_json(created)
        return
    say(f"wrote {', '.join(created.files)} to {created.folder}")
    say(f"\nwhat to do next:\n  cd {shlex.quote(os.path.relpath(created.folder))}")
    for command in created.next:
        say(f"  {command}")


@click.command("dev")
@click.argument("jobfile", metavar="JOBFILE[:NAME]")
@run_options("root", "drop_state", "refill", "param")
@JSON
def dev_command(jobfile: str, as_json: bool, **given: Any) -> None:
    """Run the job without Spark, and restart it from its last checkpoint after each save, until Ctrl-C."""
    output = sys.stderr if as_json else None
    outcome = develop(jobfile, lambda line: say(line, err=as_json), output, RealClock(), **given)
    if as_json:
        print_json(outcome)


@click.command("doctor")
@click.option("--root", type=click.Path(path_type=Path), default=Path(".streamwork"), help="The root of future jobs.")
@click.option("--prepare", is_flag=True, help="First make an archive of Spark's classes, for faster starts.")
@JSON
def doctor_command(root: Path, prepare: bool, as_json: bool) -> None:
    """Check Python, Java, Spark, its workers and the disk, and advise on what is missing."""
    screen = console()
    if prepare:
        say("starting Spark once, to archive the classes that it loads (about half a minute)", err=True)
        archive = prepare_archive()
        say(f"made {archive} ({archive.stat().st_size / (1 << 20):.0f} MiB)", err=True)

    def show(finding: Finding) -> None:
        mark = "[green]ok[/green]  " if finding.ok else "[red]FAIL[/red]"
        screen.print(f"{mark} {finding.check:<8}", end=" ")
        screen.print(cell(finding.found), soft_wrap=True)
        if finding.action:
            screen.print(cell(f"     what to do: {finding.action}"), soft_wrap=True)

    findings = examine(root.absolute(), (lambda finding: None) if as_json else show)
    healthy = all(finding.ok for finding in findings)
    if as_json:
        print_json({"ok": healthy, "findings": findings})
    sys.exit(0 if healthy else 1)


class _Demos(click.Group):
    """The group ``demo``. Without the name of a demo, options are those of ``network``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["network", *args]
        return super().parse_args(ctx, args)


@click.group("demo", cls=_Demos)
def demo_group() -> None:
    """Show a card network in a box, which is killed and recovers (network, the default), or the first job (card-usage)."""


demo_group.add_command(network_command)


@demo_group.command("card-usage")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(".streamwork/demo"),
    show_default=True,
    help="The folder of the job, its input and its results.",
)
@click.option(
    "--mode",
    type=click.Choice([Mode.MICROBATCH.value, Mode.LOCAL.value]),
    default=Mode.MICROBATCH.value,
    show_default=True,
    help="microbatch: on Spark. local: in this process, without Spark.",
)
@JSON
def card_usage_command(folder: Path, mode: str, as_json: bool) -> None:
    """Run the README's first job on generated transactions, and show its results and its state."""
    outcome = watched(as_json, lambda watcher: run_demo(folder.absolute(), Mode(mode), watcher))
    if as_json:
        print_json(outcome)
    else:
        show_results(folder.absolute(), say)
