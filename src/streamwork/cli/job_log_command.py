"""``streamwork logs``: the log of a job, and the tracebacks of its failures."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from streamwork.cli.job_arguments import about_a_job, find
from streamwork.cli.output import JSON, print_json, say, say_json
from streamwork.observe.job_log import LAST, follow_log, read_log
from streamwork.run.job_log import Entry
from streamwork.world import RealClock


@click.command("logs")
@about_a_job
@click.option("--last", default=LAST, show_default=True, type=click.IntRange(min=0), help="Number of entries.")
@click.option("--errors", is_flag=True, help="Only failures, each with the traceback of the task that failed.")
@click.option("--follow", is_flag=True, help="Then print new entries as they come, until Ctrl-C.")
@JSON
def job_log_command(job: str, root: Path | None, last: int, errors: bool, follow: bool, as_json: bool) -> None:
    """Show the log of a job: starts, notes, failures."""
    where = find(job, root)
    coming = follow_log(*where, RealClock()) if follow else iter(())
    next(coming, None)  # from here on: nothing is lost between the page and what follows
    page = read_log(*where, last, errors)
    if as_json and not follow:
        print_json(page)
        return
    for entry in page.entries:
        _show(entry, as_json)
    for new in coming:
        if new is not None and (new.level == "error" or not errors) and new not in page.entries:
            _show(new, as_json)


def _show(entry: Entry, as_json: bool) -> None:
    if as_json:
        say_json(msgspec.json.encode(entry))
        return
    say(f"{entry.time:%Y-%m-%d %H:%M:%S} {entry.level:7} {entry.message}")
    place = entry.component if entry.instance is None else f"{entry.component}[{entry.instance}]"
    where = [f"in {place}"] if place else []
    where += [f"epoch {entry.epoch}"] if entry.epoch is not None and entry.code else []
    if where:
        say(f"  {', '.join(where)}")
    if entry.action:
        say(f"  what to do: {entry.action}")
    if entry.traceback:
        say("\n".join(f"  {line}" for line in entry.traceback.rstrip().splitlines()))
