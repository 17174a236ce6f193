"""``streamwork state edit`` and ``state import``: savepoints with state that a person gives."""

from __future__ import annotations

from pathlib import Path

import click

from streamwork.cli.job_arguments import AS, load_as_it_ran, with_job_file
from streamwork.cli.output import JSON, print_json, say
from streamwork.cli.state_commands import AT
from streamwork.cli.state_text import show_component, show_table
from streamwork.epoch import Store
from streamwork.errors import WrongUse
from streamwork.job.jobfile import load_job
from streamwork.run.savepoints import me
from streamwork.statefiles.diff import ComponentDiff, Status
from streamwork.statefiles.editing import Edit, Edited, Editing
from streamwork.statefiles.importing import import_state
from streamwork.statefiles.point import At, Places, StatePoint
from streamwork.wording import plural
from streamwork.world import RealClock, RealDisk

FILES = click.option(
    "--file",
    "files",
    multiple=True,
    metavar="COMPONENT=FILE",
    help="A Parquet file with rows of a component, as `state export` writes it. Repeat for several.",
)
NOTE = click.option("--note", default="", help="Why it is made: shown in lists.")


@click.command("edit")
@with_job_file
@click.argument("name")
@AS
@AT
@FILES
@click.option("--sql", default="", help="UPDATE, INSERT and DELETE over one table per component, such as per_card.")
@click.option("--replace", is_flag=True, help="With --file: the file has all keys; the others are removed.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and write nothing.")
@NOTE
@JSON
def edit_command(
    job: str,
    root: Path | None,
    name: str,
    fork: str | None,
    at: str | None,
    files: tuple[str, ...],
    sql: str,
    replace: bool,
    dry_run: bool,
    note: str,
    as_json: bool,
) -> None:
    """Make the savepoint NAME with changed state, of a checkpoint or a savepoint (--at), which stays as it is."""
    edit = Edit(_files(files), sql, replace)
    loaded, root = load_as_it_ran(job, root, fork)
    graph = loaded.job.graph()
    where = Places(RealDisk(), root, loaded.job.name, graph)

    def work(point: StatePoint) -> Edited:
        return Editing(where, graph, point, edit).run(name, note, me(), RealClock(), dry_run)

    edited = where.reading(At.parse(at), work)
    if as_json:
        print_json(edited)
        return
    _show_changes(edited.components)
    if not edited.written:
        say("nothing was written: --dry-run")
        return
    say(f"savepoint {edited.name} of {edited.base}: {edited.bytes:,} bytes in {edited.path}")
    say(f"start from it with: streamwork run {job} --from savepoint:{edited.name}")


def _show_changes(components: tuple[ComponentDiff, ...]) -> None:
    rows = [[one.component, one.rows_before, one.rows_after, one.changed, one.gone, one.added] for one in components]
    show_table(["component", "rows before", "after", "changed", "gone", "added"], rows)
    for one in components:
        if one.status is not Status.SAME:
            show_component(one)


@click.command("import")
@with_job_file
@click.argument("name")
@FILES
@NOTE
@JSON
def import_command(job: str, root: Path | None, name: str, files: tuple[str, ...], note: str, as_json: bool) -> None:
    """Make the first savepoint of a job that has not run yet, with the state in Parquet files."""
    if not files:
        raise WrongUse("SW-USAGE", "which state?", "give --file COMPONENT=FILE, once or more")
    loaded = load_job(job)
    root = (root or loaded.default_root).absolute()
    store = Store(RealDisk(), root, loaded.job.name)
    made = import_state(loaded.job, store, name, _files(files), note, me(), RealClock())
    if as_json:
        print_json(made)
        return
    for component, rows in made.rows.items():
        say(f"{component}: {plural(rows, 'row')}")
    say(f"savepoint {made.name}: {made.bytes:,} bytes in {made.path}")
    say(f"start from it with: streamwork run {job} --from savepoint:{made.name}")


def _files(given: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in given:
        component, equals, file = text.partition("=")
        if not (component and equals and file):
            raise WrongUse("SW-USAGE", f"--file {text} names no component", "write --file COMPONENT=FILE")
        if component in found:
            raise WrongUse("SW-USAGE", f"--file names {component} twice", "give one file for each component")
        found[component] = Path(file)
    return found
