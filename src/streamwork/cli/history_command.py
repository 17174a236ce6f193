"""``streamwork history``: the past of a job: its epochs, its lag and rates, the size of its state."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from streamwork.cli.job_arguments import about_a_job, find
from streamwork.cli.job_commands import STEPS, WIDTH
from streamwork.cli.output import JSON, cell, console, print_json, say
from streamwork.epoch.fences import moment
from streamwork.epoch.history.values import Result
from streamwork.errors import WrongUse
from streamwork.observe.history import (
    MOST_EPOCHS,
    MOST_POINTS,
    EpochPage,
    JobHistory,
    read_epochs,
    read_history,
)

POINTS = 20


@click.command("history")
@about_a_job
@click.option(
    "--points", type=click.IntRange(2, MOST_POINTS), default=POINTS, show_default=True, help="Of each series."
)
@click.option("--since", type=float, default=0.0, metavar="SECONDS", help="Only later points, in seconds since 1970.")
@click.option(
    "--epochs",
    "last",
    type=click.IntRange(1, MOST_EPOCHS),
    metavar="N",
    help="The newest N epochs instead, one by one.",
)
@click.option("--before", type=click.IntRange(0), metavar="EPOCH", help="With --epochs: those before this one.")
@click.option(
    "--outcome", type=click.Choice([one.value for one in Result]), help="With --epochs: those with this outcome."
)
@JSON
def history_command(
    job: str,
    root: Path | None,
    points: int,
    since: float,
    last: int | None,
    before: int | None,
    outcome: str | None,
    as_json: bool,
) -> None:
    """Show how lag, rates and state of a job have gone, or its epochs, abandoned and failed ones too."""
    where = find(job, root)
    if last is None:
        if before is not None or outcome is not None:
            raise WrongUse("SW-USAGE", "--before and --outcome choose epochs", "add --epochs N")
        series = read_history(*where, since, points)
        if as_json:
            print_json(series)
        else:
            _show_series(series)
        return
    page = read_epochs(*where, last, before, None if outcome is None else Result(outcome))
    if as_json:
        print_json(page)
    else:
        _show_epochs(page)


def _show_epochs(page: EpochPage) -> None:
    say(f"job {page.job}, root {page.root}")
    table = Table("epoch", "outcome", "started", "events", *STEPS, "fence", "note", box=None)
    for row in page.epochs:
        steps = msgspec.to_builtins(row.seconds)
        table.add_row(
            str(row.epoch),
            row.outcome.value,
            moment(row.started),
            f"{row.events:,}",
            *("" if steps[name] is None else f"{steps[name] * 1000:,.0f} ms" for name in STEPS),
            str(row.fence),
            cell(row.note),
        )
    console(width=max(WIDTH, console().width)).print(table)
    if page.next is not None:
        say(f"older ones: --before {page.next}")


def _show_series(found: JobHistory) -> None:
    say(f"job {found.job}, root {found.root}")
    for source in found.input:
        table = Table(source.source, f"lag ({source.unit})", "incoming/s", "reading/s", box=None)
        for point in source.points:
            table.add_row(moment(point.at), f"{point.lag:,}", _rate(point.incoming), _rate(point.reading))
        console(width=max(WIDTH, console().width)).print(table)
    for component in found.state:
        table = Table(component.component, "keys", "bytes", box=None)
        for size in component.points:
            table.add_row(moment(size.at), f"{size.keys:,}", f"{size.bytes:,}")
        console(width=max(WIDTH, console().width)).print(table)
    if not (found.input or found.state):
        say("nothing was recorded yet")


def _rate(per_second: float | None) -> str:
    return "" if per_second is None else f"{per_second:,.1f}"
