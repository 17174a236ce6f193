"""``streamwork rescale``: another number of instances for the state of a job at rest.

Errors are raised as they are; `cli.main` turns them into text or JSON and an exit code.
"""

from __future__ import annotations

from pathlib import Path

import click

from streamwork.cli.job_arguments import load_as_it_ran, with_job_file
from streamwork.cli.output import JSON, print_json, say
from streamwork.epoch.job_folder import open_store
from streamwork.errors import WrongUse
from streamwork.run.rescaling import rescale
from streamwork.wording import plural
from streamwork.world import RealClock


@click.command("rescale")
@with_job_file
@click.argument("counts", metavar="COMPONENT=N ...", nargs=-1, required=True)
@JSON
def rescale_command(job: str, root: Path | None, counts: tuple[str, ...], as_json: bool) -> None:
    """Divide the state of components of a job at rest among other numbers of instances."""
    wanted = dict(map(_count, counts))
    loaded, root = load_as_it_ran(job, root)
    done = rescale(loaded.job, open_store(root, loaded.job.name), wanted, RealClock(), lambda line: say(line, err=True))
    if as_json:
        print_json(done)
        return
    for one in done.components:
        if one.before == one.now and done.base == done.checkpoint:
            say(f"{one.component} is divided among {plural(one.now, 'instance')} already")
        else:
            say(
                f"{one.component}: {plural(one.before, 'instance')} -> {one.now}, {plural(one.rows, 'row')}, {one.bytes:,} bytes"
            )
    say(f"checkpoint {done.checkpoint} of job {done.job}, root {done.root}; {done.seconds:.1f} s")
    for note in done.notes:
        say(f"note: {note}")


def _count(text: str) -> tuple[str, int]:
    component, _, number = text.partition("=")
    if not component or not number.isascii() or not number.isdigit() or int(number) < 1:
        raise WrongUse("SW-USAGE", f"{text!r} is not COMPONENT=N", "write for example per-card=8")
    return component, int(number)
