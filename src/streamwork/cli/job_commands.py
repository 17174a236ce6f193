"""The commands about a job that has run: status, stop, checkpoints.

Errors are raised as they are; `cli.main` turns them into text or JSON and an exit code.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
from rich.table import Table

from streamwork.cli.job_arguments import AS, about_a_job, find, load_as_it_ran
from streamwork.cli.output import JSON, console, print_json, say
from streamwork.cli.overview_text import show_epoch, show_graph, show_overview
from streamwork.cli.status_text import status_lines
from streamwork.components.duration import seconds
from streamwork.epoch.history.values import Seconds
from streamwork.epoch.job_folder import open_store
from streamwork.errors import WrongUse
from streamwork.observe.checkpoints import CheckpointList, read_checkpoints
from streamwork.observe.epoch import read_epoch
from streamwork.observe.job_view import read_job
from streamwork.observe.status import read_status
from streamwork.observe.summary import read_overview
from streamwork.run.savepoints import check_new, create_savepoint
from streamwork.run.stop_request import StopResult, check_drained, request_stop
from streamwork.wording import plural
from streamwork.world import RealClock

STEPS = Seconds.__struct_fields__
WIDTH = 130
RESTORE = (
    "restore the files from a backup; the next start sets aside what it cannot use, and resumes at an intact checkpoint"
)


@click.command("status")
@about_a_job
@click.option("--prometheus", is_flag=True, help="Print metrics in the format of Prometheus.")
@click.option("--graph", is_flag=True, help="Show the components too, with rates, state and instances.")
@JSON
def status_command(job: str, root: Path | None, prometheus: bool, graph: bool, as_json: bool) -> None:
    """Show where a job runs, its last checkpoint, its lag and its counts. With a ROOT in place of a job: all jobs in it."""
    if prometheus and (as_json or graph):
        raise WrongUse("SW-USAGE", "--prometheus is a format of its own", "leave out --json and --graph")
    if root is None and Path(job).is_dir():
        if prometheus or graph:
            raise WrongUse("SW-USAGE", "--prometheus and --graph are about one job", "name it: --root ROOT JOB")
        overview = read_overview(Path(job).absolute(), RealClock())
        if as_json:
            print_json(overview)
        else:
            show_overview(overview)
        return
    where = find(job, root)
    if graph:
        view = read_job(*where, RealClock())
        if as_json:
            print_json(view)
            return
        for line in status_lines(view.status):
            say(line)
        if view.graph is not None:
            show_graph(view.graph)
        return
    status = read_status(*where, RealClock())
    if prometheus:
        from streamwork.observe.metrics import exposition

        say(exposition(status).decode().removesuffix("\n"))
    elif as_json:
        print_json(status)
    else:
        for line in status_lines(status):
            say(line)


@click.command("stop")
@about_a_job
@click.option("--timeout", default="60s", show_default=True, metavar="DURATION", help="How long to wait for the end.")
@click.option("--savepoint", metavar="NAME", help="Then create a savepoint of the job. Needs the job file.")
@click.option("--note", default="", help="With --savepoint: why it is made.")
@AS
@click.option("--drain", is_flag=True, help="Read the input that is there first, and fire the timers that are due.")
@JSON
def stop_command(
    job: str,
    root: Path | None,
    timeout: str,
    savepoint: str | None,
    note: str,
    fork: str | None,
    drain: bool,
    as_json: bool,
) -> None:
    """Ask a running job and its standbys to stop after the checkpoint in progress, and wait until they have."""
    clock = RealClock()
    if savepoint is not None:
        loaded, found = load_as_it_ran(job, root, fork)
        store = open_store(found, loaded.job.name)
        check_new(store, savepoint)
    where = find(job, root)
    where = (where[0], fork or where[1])
    stopped = request_stop(*where, seconds(timeout), clock, lambda line: say(line, err=True), drain)
    if drain:
        check_drained(stopped)
    if savepoint is not None:
        made = create_savepoint(loaded.job, store, savepoint, note, seconds(timeout), clock)
        stopped = msgspec.structs.replace(stopped, savepoint=made)
    if as_json:
        print_json(stopped)
    else:
        say(stop_line(stopped))


def stop_line(stopped: StopResult) -> str:
    retry = (
        ""
        if stopped.abandoned is None
        else f"; checkpoint {stopped.abandoned}, which waited for a retry, was abandoned: the next start reads its input again"
    )
    saved = "" if stopped.savepoint is None else f"; savepoint {stopped.savepoint.name} is in {stopped.savepoint.path}"
    standbys = f"; {plural(stopped.standbys, 'standby')} ended" if stopped.standbys else ""
    return f"{stopped.text}{standbys}{retry}; the last checkpoint is {stopped.checkpoint}{saved}"


@click.command("checkpoints")
@about_a_job
@click.option(
    "--verify", is_flag=True, help="Compare every file of every checkpoint with its hash. Exit code 1: damage."
)
@click.option("--show", "number", type=click.IntRange(0), metavar="N", help="One epoch instead, with files and counts.")
@JSON
def checkpoints_command(job: str, root: Path | None, verify: bool, number: int | None, as_json: bool) -> None:
    """List the checkpoints of a job, newest first."""
    if number is not None:
        if verify:
            raise WrongUse("SW-USAGE", "--verify compares all checkpoints", "leave out --show or --verify")
        epoch = read_epoch(*find(job, root), number, RealClock())
        if as_json:
            print_json(epoch)
        else:
            show_epoch(epoch)
        return
    found = read_checkpoints(*find(job, root), RealClock(), verify)
    if as_json:
        print_json(found)
    else:
        say(f"job {found.job}, root {found.root}")
        _show(found)
        for one in found.damaged:
            say("\n".join(f"\ncheckpoint {one.checkpoint}: {problem}" for problem in one.problems or ()))
        if found.damaged:
            say(f"  what to do: {RESTORE}")
        elif verify:
            say("every file of every checkpoint is intact")
    sys.exit(1 if verify and found.damaged else 0)


def _show(found: CheckpointList) -> None:
    table = Table("checkpoint", "state", "age", "events", "keys", "bytes", *STEPS, "fence", box=None)
    for one in found.checkpoints:
        steps = msgspec.to_builtins(one.seconds or Seconds())
        table.add_row(
            str(one.checkpoint),
            one.state.value,
            "" if one.age_seconds is None else f"{one.age_seconds:,.0f} s",
            *("" if number is msgspec.UNSET else f"{number:,}" for number in (one.events, one.keys, one.state_bytes)),
            *("" if steps[name] is None else f"{steps[name] * 1000:,.0f} ms" for name in STEPS),
            "" if one.fence is msgspec.UNSET else str(one.fence),
        )
    # A line that does not fit is wrapped by the terminal rather than cut off here.
    console(width=max(WIDTH, console().width)).print(table)
