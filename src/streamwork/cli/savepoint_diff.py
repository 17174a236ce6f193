"""``streamwork savepoint diff``: what is different between two savepoints."""

from __future__ import annotations

from pathlib import Path

import click

from streamwork.cli.job_arguments import about_a_job
from streamwork.cli.output import JSON
from streamwork.cli.state_commands import compare, places
from streamwork.statefiles.diff import EXAMPLES
from streamwork.statefiles.point import CHECKPOINT, SAVEPOINT, At


@click.command("diff")
@about_a_job
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option("--component", "only", multiple=True, metavar="ID", help="Only this component; may be repeated.")
@click.option("--limit", type=click.IntRange(0), default=EXAMPLES, show_default=True, help="Examples of each kind.")
@JSON
def diff_command(
    job: str, root: Path | None, before: str, after: str, only: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """Compare two savepoints of a job, component by component: each a NAME, or as for `state diff`."""
    compare(places(job, root), _at(before), _at(after), only, limit, as_json)


def _at(text: str) -> At:
    is_name = not text.startswith((CHECKPOINT, SAVEPOINT)) and "/" not in text
    return At.parse(f"{SAVEPOINT}{text}" if is_name else text)
