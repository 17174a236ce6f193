"""``streamwork savepoint``: creates, lists, shows and drops savepoints."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from streamwork.cli.job_arguments import AS, about_a_job, load_as_it_ran, with_job_file
from streamwork.cli.job_commands import WIDTH
from streamwork.cli.output import JSON, cell, console, print_json, say
from streamwork.components.duration import seconds
from streamwork.epoch import Store
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.savepoints import FOLDER
from streamwork.epoch.savepoints.origin import SAVEPOINT
from streamwork.errors import WrongUse
from streamwork.job import Graph
from streamwork.job.jobfile import load_job
from streamwork.job.names import check_name
from streamwork.observe.savepoints import SavepointInfo, read_savepoint, read_savepoints
from streamwork.run.forking import fork
from streamwork.run.savepoints import SavepointMade, create_savepoint, drop_savepoint
from streamwork.world import RealClock, RealDisk

TIMEOUT = click.option(
    "--timeout", default="10min", show_default=True, metavar="DURATION", help="How long to wait for a running job."
)
NOTE = click.option("--note", default="", help="Why it is made: shown in lists.")


@click.group("savepoint")
def savepoint_group() -> None:
    """Create, list, show and drop savepoints: copies of a checkpoint that are kept until you drop them."""


@savepoint_group.command("create")
@with_job_file
@click.argument("name")
@AS
@NOTE
@TIMEOUT
@JSON
def create_command(
    job: str, root: Path | None, name: str, fork: str | None, note: str, timeout: str, as_json: bool
) -> None:
    """Create a savepoint of a job, which goes on if it is running. Needs the job file."""
    made = create(job, root, name, note, timeout, fork)
    if as_json:
        print_json(made)
    else:
        say(made_line(made))


def create(job: str, root: Path | None, name: str, note: str, timeout: str, fork: str | None = None) -> SavepointMade:
    loaded, root = load_as_it_ran(job, root, fork)
    return create_savepoint(
        loaded.job,
        open_store(root, loaded.job.name),
        name,
        note,
        seconds(timeout),
        RealClock(),
        lambda line: say(line, err=True),
    )


def made_line(made: SavepointMade) -> str:
    how = "the job goes on" if made.was_running else "the job was at rest"
    return f"savepoint {made.name} of checkpoint {made.checkpoint}: {made.bytes:,} bytes in {made.path}; {how}"


@savepoint_group.command("list")
@about_a_job
@JSON
def list_command(job: str, root: Path | None, as_json: bool) -> None:
    """List the savepoints of a job, oldest first."""
    root, name, graph = _about(job, root)
    found = read_savepoints(root, name, graph)
    if as_json:
        print_json(found)
        return
    say(f"job {found.job}, root {found.root}")
    table = Table("name", "checkpoint", "created", "by", "rows", "bytes", "state", "note", box=None)
    for one in found.savepoints:
        table.add_row(
            cell(one.name),
            _text(one.checkpoint),
            when(one.created),
            cell(_text(one.by)),
            _text(one.rows),
            _text(one.bytes),
            "input gone" if one.input_gone else one.state.value,
            cell(_text(one.note)),
        )
    console(width=max(WIDTH, console().width)).print(table)
    for one in found.savepoints:
        for line in _remarks(one):
            say(f"{one.name}: {line}")


@savepoint_group.command("show")
@about_a_job
@click.argument("name")
@click.option("--verify", is_flag=True, help="Compare every file with its hash. Exit code 1: damage.")
@JSON
def show_command(job: str, root: Path | None, name: str, verify: bool, as_json: bool) -> None:
    """Show what a savepoint holds."""
    root, job_name, graph = _about(job, root)
    store = open_store(root, job_name)
    found = read_savepoint(store.disk, store.folder / FOLDER / check_name(name, "savepoint"), graph, verify)
    if as_json:
        print_json(found)
    else:
        info = found.info
        say(f"savepoint {info.name} of job {found.job}, checkpoint {_text(info.checkpoint)}, at {found.positions}")
        say(f"created {when(info.created)} by {_text(info.by)}, with version {found.written_by}")
        if info.note:
            say(f"note: {info.note}")
        if found.origin:
            say(f"made: {found.origin}")
        say(f"{_text(info.rows)} rows of state, {len(found.files):,} files, {_text(info.bytes)} bytes in {info.path}")
        say("parallelism: " + ", ".join(f"{node}={count}" for node, count in found.parallelism.items()))
        if found.params:
            say("parameters: " + ", ".join(f"{name}={value}" for name, value in found.params.items()))
        for line in _remarks(info):
            say(line)
        for problem in found.problems:
            say(problem)
        if verify and not found.problems:
            say("every file is intact")
    if found.problems:
        raise SystemExit(1)


@savepoint_group.command("drop")
@with_job_file
@click.argument("name")
@AS
@JSON
def drop_command(job: str, root: Path | None, name: str, fork: str | None, as_json: bool) -> None:
    """Remove a savepoint, complete or half-made. Needs the job file: its logs no longer keep events for the savepoint."""
    loaded, root = load_as_it_ran(job, root, fork)
    dropped = drop_savepoint(loaded.job, open_store(root, loaded.job.name), name)
    if as_json:
        print_json(dropped)
    else:
        say(f"dropped savepoint {dropped.name}" + ("" if dropped.complete else ", which was half-made"))


@savepoint_group.command("fork")
@with_job_file
@click.argument("name", metavar="NAME | PATH")
@click.option("--as", "fork_name", required=True, metavar="NEWJOB", help="The name of the new job.")
@click.option(
    "--target", "given", multiple=True, metavar="SINK=TARGET", help="The target of a sink. Repeat for several."
)
@JSON
def fork_command(job: str, root: Path | None, name: str, fork_name: str, given: tuple[str, ...], as_json: bool) -> None:
    """Make a job of its own of a savepoint: it goes on beside the one that the savepoint was taken of.

    A TARGET is a path (SQLite, Parquet, log), a table (PostgreSQL) or a prefix (Redis). Relative paths are resolved against the
    folder of JOBFILE.
    """
    targets = {}
    for text in given:
        sink, equals, target = text.partition("=")
        if not (sink and equals and target):
            raise WrongUse("SW-USAGE", f"--target {text} names no target", "write SINK=TARGET")
        targets[sink] = target
    loaded = load_job(job)
    root = (root or loaded.default_root).absolute()
    origin = name if "/" in name else f"{SAVEPOINT}{name}"
    check_name(fork_name, "job name")
    store = Store(RealDisk(), root, loaded.job.name)
    made = fork(loaded.job, store, origin, fork_name, targets, RealClock(), lambda line: say(line, err=True))
    if as_json:
        print_json(made)
    else:
        say(f"job {made.job} begins with {made.origin}, as its checkpoint {made.checkpoint}, in {made.root}")
        say(f"run it with: streamwork run {shlex.quote(job)} --as {made.job}")


def _about(job: str, root: Path | None) -> tuple[Path, str, Graph | None]:
    """The root and the name of the job, and its graph if a job file is named."""
    if root is not None and not Path(job.partition(":")[0]).is_file():
        return root.absolute(), job, None
    loaded, root = load_as_it_ran(job, root)
    return root, loaded.job.name, loaded.job.graph()


def _remarks(info: SavepointInfo) -> list[str]:
    lines = [info.problem] if isinstance(info.problem, str) else []
    return lines + [f"the input behind it is gone: {gone}" for gone in info.input_gone or ()]


def when(created: Any) -> str:
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if isinstance(created, float) else ""


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else value if isinstance(value, str) else ""
